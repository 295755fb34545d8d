"""Values: what the rest of the package says to itself and to others; frozen, and without a framework."""
