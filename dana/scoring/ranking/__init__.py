"""Comparison of detectors on held-out target text by recall at the budget or F1, and the choice of one."""
