"""How a repro makes, reads and differentiates tensors in each framework: every module has the same functions."""
