"""Backends: the adapters that execute a program's steps in one framework and mode."""
