"""Benchmarks. Each figure is a ratio to raw execution, and both sides are measured in the same run."""
