"""Localize: the first misaligned step, or how the error grows if no step is misaligned alone."""
