"""Candidates that are a group of ranks: how tensors are distributed over it, and what its ranks must agree on."""
