"""The topic gap: labelled documents of a task to on- and off-topic sets, and to what a classifier is trained on."""
