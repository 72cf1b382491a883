"""Studies: what stands on the core, an experiment of a paper in each folder; the core imports none."""
