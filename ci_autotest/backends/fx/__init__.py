"""Candidates that are a graph pass: programs as graphs of torch.fx."""
