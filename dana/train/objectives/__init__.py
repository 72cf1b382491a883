"""Training objectives: what a model learns to predict from a sequence, and the weighted loss of a step."""
