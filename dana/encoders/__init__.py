"""Encode texts as vectors: one encoder per file, each with the protocol of :mod:`dana.encoders.base`."""
