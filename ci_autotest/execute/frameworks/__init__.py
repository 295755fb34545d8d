"""Adapters of frameworks: one class each, which a host instantiates in that framework's interpreter."""
