"""Task cards, the labelled examples they name, presets and metrics."""
