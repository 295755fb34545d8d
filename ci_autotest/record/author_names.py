"""The names that a test gives its tensors: findings and programs speak of ``weight``, as the test does.

It is the variable that the author's code binds to what the running call returns, so that the bytecode says it.
"""

from __future__ import annotations

import dis
import sys
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import CodeType, FrameType

#: Modules whose frames lie between the recorder and the author's code.
_OWN: Final = ("ci_autotest.record", "ci_autotest.testing", "ci_autotest.compat")
#: Instructions that bind a variable; newer interpreters join two in one.
_STORES: Final = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")


def author_name() -> str | None:
    """Return the variable that the author's running statement binds to the value being made; ``None`` if to none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        frame = frame.f_back
    if frame is None:
        return None
    offsets, names = _bound_after(frame.f_code)
    at = bisect_right(offsets, frame.f_lasti)
    return names[at] if at < len(names) else None


@lru_cache(maxsize=1024)
def _bound_after(code: CodeType) -> tuple[list[int], list[str | None]]:
    """Return the offsets of a function's instructions, and the variable that each binds."""
    instructions = [each for each in dis.get_instructions(code) if each.opname != "NOP"]
    return [each.offset for each in instructions], [
        (each.argval[0] if isinstance(each.argval, tuple) else each.argval) if each.opname.startswith(_STORES) else None
        for each in instructions
    ]
