"""The place of a step's value in a finding: by the name that the printed program gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.ir import is_unpacking, step_refs
from ci_autotest.values.verdict import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Step
    from ci_autotest.values.verdict import Aspect


def value_place(named: Sequence[str], steps: Sequence[Step], index: int, aspect: Aspect = "value") -> Value:
    """Return a step's value as a place; an element of a tuple by the name of the tuple and its index.

    Args:
        named: Name of each step.
        steps: Of the program.
        index: The step.
        aspect: What of the value differs.
    """
    step = steps[index]
    element = step.args[1] if is_unpacking(step) and isinstance(step.args[1], int) else None
    return Value(name=named[index if element is None else step_refs(step)[0].index], aspect=aspect, element=element)
