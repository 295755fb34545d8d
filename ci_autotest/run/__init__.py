"""Running: worker processes that run cases, and the parent's side that watches them."""
