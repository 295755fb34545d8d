"""Test files of other harnesses, run unmodified: what they import is answered with our names, by an import hook.

Only workers import this package, and only for ``--compat``. A file's own meaning is kept where it differs from ours.
"""
