"""Blame: which side is wrong, by exact results, by rounding and by how far inputs carry."""
