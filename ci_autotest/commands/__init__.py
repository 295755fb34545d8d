"""The commands, one module each, and what only they use: they wire the stages, and apply what those decide."""
