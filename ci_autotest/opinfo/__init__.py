"""PyTorch's operator and module databases as sources of tests: ``builtin:opinfo`` and ``builtin:modules``.

An entry of a database is a test, and a sample of an entry is a case. ``database`` is the only module that touches
PyTorch's private API; ``names`` is all that the parent process imports.
"""
