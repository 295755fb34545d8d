"""Write the steps of a translated program: update references, insert adapters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.framework.mapping.table import ADAPTERS
from ci_autotest.program.edit import mapped, renumbered_step
from ci_autotest.program.ir import CALL_FUNCTION, PLAIN_TYPES, DType, List, Ref, Step, TensorSpec, ref_to
from ci_autotest.values.dtypes import DTYPES, HALF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Argument

#: A dtype as a table writes it.
_DTYPE: Final = re.compile(rf"dtype\.({'|'.join(DTYPES)})")


class Writer:
    """Collect the steps of a translated program.

    Attributes:
        steps: The steps written so far.
        places: Index of the value of each step of the original.
        has_moved: Whether any value has another index than in the original. Until then references need no update.
        original: The steps to translate.
    """

    __slots__ = ("has_moved", "original", "places", "steps")

    def __init__(self, original: Sequence[Step] = ()) -> None:
        self.original = original
        self.steps: list[Step] = []
        self.places: list[int] = []
        self.has_moved = False

    @property
    def is_narrow(self) -> bool:
        """Whether the original names a 16-bit dtype, in which generators that agree in 32 bits give other numbers."""
        named = (value for step in self.original for value in (*step.args, *(value for _, value in step.kwargs)))
        return any(
            (isinstance(value, TensorSpec) and value.dtype in HALF) or (isinstance(value, DType) and value.name in HALF)
            for value in named
        )

    def give(self, index: int) -> None:
        """Record the index of the value of the original's next step."""
        self.places.append(index)
        self.has_moved = self.has_moved or len(self.steps) != len(self.places)

    def add(self, step: Step) -> int:
        """Append a step and return its index."""
        self.steps.append(step)
        return len(self.steps) - 1

    def keep(self, step: Step) -> int:
        """Append a step of the original with updated references."""
        if not self.has_moved:
            return self.add(step)
        return self.add(renumbered_step(step, self.places))

    def adapted(self, step: Step, adapter: str | None, value: Argument) -> Argument:
        """Return an argument with updated references; if it has an adapter, append that step and refer to it."""
        found = self.moved(value)
        return found if adapter is None else ref_to(self.add(adapter_step(adapter, (found,), step)))

    def promoted(self, step: Step, adapter: str, args: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """Return arguments of a step, each behind a step of an adapter that takes it and then the others."""
        return tuple(
            ref_to(self.add(adapter_step(adapter, (value, *args[:i], *args[i + 1 :]), step)))
            for i, value in enumerate(args)
        )

    def moved(self, argument: Argument) -> Argument:
        """Return an argument whose references point to the translated steps."""
        if not self.has_moved or type(argument) in PLAIN_TYPES:
            return argument
        return mapped(argument, lambda part: ref_to(self.places[part.index]) if type(part) is Ref else part)


def adapter_step(name: str, args: tuple[Argument, ...], step: Step) -> Step:
    """Return the step that puts values of ``step`` through an adapter."""
    return Step(CALL_FUNCTION, f"{ADAPTERS}{name}", args, (), step.name, step.modes, None, step.in_setup)


def literal(value: Any) -> Argument:
    """Return a constant of a table, or a default of torch, as an argument; ``dtype.int64`` becomes a dtype."""
    if isinstance(value, list):
        return List(tuple(map(literal, value)))
    if isinstance(value, str) and (found := _DTYPE.fullmatch(value)):
        return DType(found[1])
    return value  # type: ignore[no-any-return]
