"""Translate programs from torch to another framework: bind arguments by name, lower modules, look up operators."""
