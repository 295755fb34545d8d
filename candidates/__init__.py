"""``make candidates``: Python environments of other frameworks, each with the Python version that it needs."""
