"""What an adapter raises where a framework has no counterpart for the values that it is given."""

from __future__ import annotations


class NoCounterpart(Exception):  # noqa: N818 - no error: the case says nothing about the candidate
    """Say that a call of torch cannot be written in the framework: the case is unsupported, not misaligned.

    A table's row says so of arguments; an adapter says so where it depends on their values or on the tensors' shapes.
    """
