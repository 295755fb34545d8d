"""Frozen values that the other packages exchange and write to files; no framework is imported here."""
