"""Operators: which names are one operator, which a candidate supports, which a program uses."""
