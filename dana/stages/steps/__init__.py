"""Runs of steps: stage functions by name with plain settings, run in parallel, collected as one table."""
