"""The number of rows of a batch where a body holds it as a size: of ``x.view(x.size(0), 2)`` a number is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.ir import List

if TYPE_CHECKING:
    from ci_autotest.program.ir import Argument, Program, Step

#: The last name of calls that take sizes.
_OF_SIZES: Final = frozenset({
    "view", "reshape", "expand", "unflatten", "repeat", "new_zeros", "new_ones", "new_full", "new_empty", "zeros",
    "ones", "full", "empty", "arange",
})  # fmt: skip


def steps_with_rows(program: Program, rows: int) -> list[int]:
    """Return the steps of a body that hold the number of rows as a size, by index.

    Args:
        program: Any.
        rows: Of the whole batch.
    """
    steps = enumerate(program.steps)
    return [index for index, step in steps if not step.in_setup and with_rows(step, rows, rows + 1) != step]


def with_rows(step: Step, rows: int, own: int) -> Step:
    """Return a step with another number of rows as a size; any other step stays as it is."""
    if step.target.rpartition(".")[2] not in _OF_SIZES:
        return step
    kwargs = tuple((key, _replaced(value, rows, own)) for key, value in step.kwargs)
    return step._replace(args=tuple(_replaced(value, rows, own) for value in step.args), kwargs=kwargs)


def _replaced(argument: Argument, rows: int, own: int) -> Argument:
    if isinstance(argument, int) and not isinstance(argument, bool):
        return own if argument == rows else argument
    if isinstance(argument, tuple):
        return tuple(_replaced(item, rows, own) for item in argument)
    return (
        List(tuple(_replaced(item, rows, own) for item in argument.items)) if isinstance(argument, List) else argument
    )
