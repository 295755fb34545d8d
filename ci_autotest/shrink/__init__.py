"""Shrinking: to the smallest program that shows the same. Proposer and told; it runs nothing itself."""
