"""Operators of torch: which spellings are one operator, which names exist, and their signatures."""
