"""Bugs of record: historical bugs of operators, rewritten as small kernels; which of them the shipped suite finds."""
