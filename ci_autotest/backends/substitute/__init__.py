"""Candidates that are the user's functions in place of operators: which calls they get, and in which process."""
