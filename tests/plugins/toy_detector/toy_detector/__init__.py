"""A third party's package: the smallest that adds detectors to dana."""
