"""The operator calls of a user's program become a file of tests: observed, written down, and printed as Python."""
