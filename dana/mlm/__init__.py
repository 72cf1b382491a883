"""Masked language modelling as pure functions: what text, which tokens, at what cost."""
