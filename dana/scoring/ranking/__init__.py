"""Comparison of detectors on held-out target text, and the choice of one."""
