"""Recording: a test body runs once per case, on the reference, and its recorded values log every operation."""
