"""Fine-tune a checkpoint on a labelled task, once per seed; write results and classifiers."""
