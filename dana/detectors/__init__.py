"""Anomaly detectors, a file each: embeddings in, scores out; higher = more anomalous. The contract is in base.py."""
