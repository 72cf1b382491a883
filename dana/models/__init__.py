"""Load and identify transformer models, create new ones, select logits, attend without padding."""
