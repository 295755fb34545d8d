"""How a process ended, as text."""

from __future__ import annotations

import signal


def exit_text(code: int) -> str:
    """Return how a process ended, from its exit status or the negative number of a signal, as ``subprocess`` has it."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # A real-time signal has no name.
        return f"ended by signal {-code}"
