"""Fine-tuning on labelled tasks: a task is a YAML card, a result is a distribution over seeds."""
