"""Skips of a body: the exceptions of unittest and pytest that skip a case, and their reason."""

from __future__ import annotations

import sys
import unittest


def skip_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exceptions that skip a test; pytest's only if the user has imported pytest."""
    pytest = sys.modules.get("pytest")
    return (unittest.SkipTest, *([pytest.skip.Exception] if pytest is not None else []))


def skip_reason(error: BaseException) -> str:
    """Return the reason that a skip gives."""
    return str(getattr(error, "msg", None) or error) or "no reason given"
