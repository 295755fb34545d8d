"""Speed beside correctness: paired times of a candidate and its reference, their ratio, and what can be said of it."""
