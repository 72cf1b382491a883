"""Turn anomaly scores into training weights, and estimate the in-domain share of the selected text."""
