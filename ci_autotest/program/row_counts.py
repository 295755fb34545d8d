"""The number of rows of a batch where a body holds it as a size: of ``x.view(x.size(0), 2)`` a number is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.edit import mapped
from ci_autotest.program.targets import last_name

if TYPE_CHECKING:
    from ci_autotest.program.ir import Argument, Program, Step

_ALL: Final = slice(None)
_AFTER_RECEIVER: Final = slice(1, None)
#: Which arguments are sizes, by the last name of a call. A fill value or a dimension that is the same number is none.
_SIZES: Final = {
    "zeros": _ALL, "ones": _ALL, "empty": _ALL, "full": slice(0, 1), "arange": _ALL,
    "view": _AFTER_RECEIVER, "reshape": _AFTER_RECEIVER, "expand": _AFTER_RECEIVER, "repeat": _AFTER_RECEIVER,
    "new_zeros": _AFTER_RECEIVER, "new_ones": _AFTER_RECEIVER, "new_empty": _AFTER_RECEIVER, "new_full": slice(1, 2),
    "unflatten": slice(2, None),
}  # fmt: skip
_SIZE_NAMES: Final = frozenset({"size", "shape", "sizes", "repeats"})
#: Of a range, only an end that is alone is the number of its elements.
_RANGE: Final = "arange"
_RANGE_NAMES: Final = frozenset({"start", "end", "step"})


def steps_with_rows(program: Program, rows: int) -> list[int]:
    """Return the steps of a body that hold the number of rows as a size, by index.

    Args:
        program: Any.
        rows: Of the whole batch.
    """
    return [index for index, step in program.numbered if with_rows(step, rows, rows + 1) != step]


def with_rows(step: Step, rows: int, own: int) -> Step:
    """Return a step with another number of rows as a size; any other step stays as it is."""
    name = last_name(step.target)
    if name not in _SIZES:
        return step
    named = _SIZE_NAMES
    if name == _RANGE:
        if len(step.args) + sum(key in _RANGE_NAMES for key, _ in step.kwargs) > 1:
            return step
        named = frozenset({"end"})
    args = list(step.args)
    args[_SIZES[name]] = [_replaced(value, rows, own) for value in args[_SIZES[name]]]
    kwargs = tuple((key, _replaced(value, rows, own) if key in named else value) for key, value in step.kwargs)
    return step._replace(args=tuple(args), kwargs=kwargs)


def _replaced(argument: Argument, rows: int, own: int) -> Argument:
    return mapped(argument, lambda part: own if type(part) is int and part == rows else part)
