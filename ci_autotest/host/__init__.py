"""The interpreter of programs. Standard library and numpy only: it runs inside any framework's environment."""
