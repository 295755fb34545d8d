"""Programs as values: what a test body did, well-formed, printable, writable."""
