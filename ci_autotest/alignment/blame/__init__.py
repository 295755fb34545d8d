"""Blame: which side is wrong, judged by float64, rounding error and conditioning."""
