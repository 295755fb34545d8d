"""The operator suite that ships with the package (``builtin:suite``): one file per family.

It is user code: written as a user writes tests, it imports the public names of ``ci_autotest`` and nothing else.
A profile changes no size that two tensors share; where there is no other size, the edges are drawn with the size.
"""
