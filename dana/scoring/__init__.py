"""Scoring a corpus in shards by any number of processes."""
