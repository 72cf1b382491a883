"""Augmentation: labelled texts and on-topic text without labels to synthetic labelled texts on a topic."""
