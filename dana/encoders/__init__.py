"""Text in, vectors out: one encoder a file, behind the protocol of :mod:`dana.encoders.base`."""
