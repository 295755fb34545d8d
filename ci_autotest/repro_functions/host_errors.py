"""For findings of which it says something if the candidate raises, in a framework without torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ci_autotest.repro_functions.arrays import compared

if TYPE_CHECKING:
    from collections.abc import Callable

SEEN_WITH: str
#: Name of the framework's module.
FRAMEWORK: str
#: The exit status if the candidate raises.
RAISES: int
run: Callable[[], dict[str, Any]]


def main(expected: dict[str, Any]) -> int:
    """Run the candidate and compare it with what the reference gave; return 1 while it differs."""
    print(f"found before: {(__doc__ or '').strip().splitlines()[0]}")
    print(f"found with {SEEN_WITH}; running {FRAMEWORK} {getattr(sys.modules[FRAMEWORK], '__version__', '')}")
    try:
        found = run()
    except Exception as error:
        status = 2 if is_own(error) else RAISES
        print(
            f"{('aligned', 'misaligned', 'cannot run')[status]}: the candidate raises {type(error).__name__}: {error}"
        )
        return status
    return compared(found, expected)


def is_own(error: BaseException) -> bool:
    """Whether this script lacks a name: that is not a finding."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_here = trace is not None and trace.tb_frame.f_code.co_filename == main.__code__.co_filename
    return isinstance(error, NameError) and is_here
