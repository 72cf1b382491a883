"""The training loop: a plan of steps known to every rank, an exact weighted loss, and losses on held-out text."""
