"""Splits of aligned lines that share none, and their audit."""
