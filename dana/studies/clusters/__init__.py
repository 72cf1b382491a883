"""Clusters of units: a Gaussian mixture of their vectors, its choice, and what tells its clusters apart."""
