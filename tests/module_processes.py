"""Run planted faults of wrappers on ranks, and print what was found as JSON.

``python -m tests.module_processes``: a process of its own, because ranks cannot be forked from one that has run a
backward pass.
"""
