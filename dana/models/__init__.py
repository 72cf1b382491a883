"""Transformer models: loading, identity, new ones from a size name, heads, variable-length attention."""
