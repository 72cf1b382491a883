"""Anomaly scores to training weights, and the estimated in-domain share of what is kept."""
