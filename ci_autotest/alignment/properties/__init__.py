"""Properties: what is defined about outputs that are not unique. ``table`` has the sources.

Each check takes a call and returns how its outputs break the property, ``""`` if they do not.
"""
