"""Adapters of frameworks, one module each: what a host asks of the framework that it runs in."""
