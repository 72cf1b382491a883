"""Read task cards and their labelled examples; presets and metrics of each kind of task."""
