"""Encode texts as vectors: one encoder per file, with the protocol of :mod:`dana.encoders.base`."""
