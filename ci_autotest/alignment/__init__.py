"""Alignment: comparing, localizing and blaming. ``trial`` is the one caller of ``compare``."""
