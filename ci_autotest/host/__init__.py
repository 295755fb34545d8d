"""Run programs inside any framework's environment. Standard library and numpy only."""
