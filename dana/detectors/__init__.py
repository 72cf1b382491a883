"""Anomaly detectors, one a file, behind the contract of :mod:`dana.detectors.base`. Higher = more anomalous."""
