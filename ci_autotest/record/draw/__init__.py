"""Draws: everything random of a test, from the words of a stream to tensors."""
