"""Training: settings, plan of the steps, loop, held-out losses, memory and speed."""
