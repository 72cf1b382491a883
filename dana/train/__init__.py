"""The training loop: a plan known to every rank, an exact weighted loss, losses on held-out text."""
