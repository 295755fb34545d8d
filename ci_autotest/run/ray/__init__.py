"""Workers on a Ray cluster."""
