"""Training state on disk: when to save, what to keep, how to go on, export as a model folder."""
