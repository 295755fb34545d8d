"""Ranks that share the batch of a module, and what they are held against."""
