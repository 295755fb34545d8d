"""A toy compiler, as a kind of candidate of ci-autotest, and tests of what it compiles."""
