"""Anomaly detectors score embeddings, higher = more anomalous. `base` defines the interface."""
