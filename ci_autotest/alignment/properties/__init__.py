"""Promises: what is defined of outputs that are not unique. One short function for each; sources are in ``unique``.

Each takes a call and returns how its outputs break the promise, ``""`` when they keep it.
"""
