"""Runs of cases in worker processes, which the parent watches."""
