"""Eager PyTorch: the reference, and the candidates that are PyTorch on another device."""
