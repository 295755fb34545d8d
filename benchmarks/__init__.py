"""Benchmarks: each figure is a ratio taken in one run, against raw execution."""
