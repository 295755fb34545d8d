"""Verify: two files become a test and a candidate in a sandbox, and the result of the run becomes a verdict."""
