"""Whether this machine has a sandbox."""

from __future__ import annotations

from ci_autotest.errors import UnavailableError
from ci_autotest.values.sandbox import sandboxed


def lacking_sandbox() -> str:
    """Return why there is no sandbox here; empty if there is one."""
    try:
        sandboxed([])
    except UnavailableError as error:
        return str(error)
    return ""
