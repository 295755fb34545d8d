"""Bugs of record: historical bugs of operators, rewritten as small kernels, and what the shipped suite finds of them."""
