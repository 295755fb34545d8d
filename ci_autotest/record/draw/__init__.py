"""Draws: everything random in a test, from the words of a stream to the data of tensors."""
