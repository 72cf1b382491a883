"""A training objective by a third party."""
