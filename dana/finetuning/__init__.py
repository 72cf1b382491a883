"""Fine-tuning of a checkpoint on a labelled task, once a seed; results, saved classifiers."""
