"""Scoring a pool in shards by any number of processes."""
