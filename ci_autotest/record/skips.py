"""Skips of a body: the exceptions of unittest and pytest that skip a case, and their reason."""

from __future__ import annotations

import sys
import unittest


def skip_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exceptions that skip a test; pytest's only if the user has imported pytest."""
    pytest = sys.modules.get("pytest")
    # After `pytest.xfail()` nothing of the body runs, so there is nothing that could pass.
    return (unittest.SkipTest, *([pytest.skip.Exception, pytest.xfail.Exception] if pytest is not None else []))


def skip_reason(error: BaseException) -> str:
    """Return the reason that a skip gives."""
    return str(getattr(error, "msg", None) or error) or "no reason given"
