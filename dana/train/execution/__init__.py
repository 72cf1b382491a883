"""Accelerate: devices, processes and sharded tensors of a launch."""
