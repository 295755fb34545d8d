"""Candidates that are another framework: a host in its own interpreter, and how programs are translated for it."""
