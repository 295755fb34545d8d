"""Properties: what is defined about outputs that are not unique, one short function each. ``table`` has the sources.

Each takes a call and returns how its outputs break the promise, ``""`` when they keep it.
"""
