"""Load and identify transformer models, create new ones, select logits, attend over variable lengths."""
