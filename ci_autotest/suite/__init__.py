"""The operator suite that ships with the package (``builtin:suite``): one file per family.

It is written as a user would write tests, so it imports only the public names of ``ci_autotest``. Profiles change no
size that two tensors share. So tests without any other size draw boundary sizes themselves.
"""
