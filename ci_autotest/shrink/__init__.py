"""Shrinking: from a failing case to the smallest program that shows the same. Proposer and told; runs nothing itself."""
