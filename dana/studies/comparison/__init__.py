"""Selectors compared on a pool with planted task text: how pool and plants are made, and what is measured."""
