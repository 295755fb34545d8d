"""Environments of other frameworks, each in the Python that it needs: ``make candidates``."""
