"""Anomaly detectors, a file each, behind the contract of dana.detectors.base. Higher = more anomalous."""
