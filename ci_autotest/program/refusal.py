"""A refusal as a step: one that the reference refused, which every side tries, and goes on.

The step holds it as a mode, so that there is no block that shrinking could unbalance: ``raises:RuntimeError`` where the
author wrote that it must be refused, ``refuses:RuntimeError`` where it was found out. Its value is how the side refused
it. That it is refused is compared, and never in which words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.errors import error_text
from ci_autotest.program.ir import OUTPUT, Program, Ref, Step, output_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

_DEMANDED: Final = "raises"
_FOUND: Final = "refuses"


class Refusal(str):
    """Say how a step was refused: the class of what was raised, the nearest of Python's own; empty: it was not.

    Attributes:
        said: The message, for reading; it is never compared.
    """

    __slots__ = ("said",)

    said: str

    def __new__(cls, kind: str = "", said: str = "") -> Self:
        """Hold both."""
        found = super().__new__(cls, kind)
        found.said = said
        return found


#: The value of a step that should have been refused and was carried out.
ACCEPTED: Final = Refusal()


def refusal_of(error: BaseException) -> Refusal:
    """Return what an exception is as the value of the step that raised it."""
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return Refusal(kind, error_text(error))


def refused(step: Step, kind: str, *, is_demanded: bool = False) -> Step:
    """Return a step as one that the reference refused with an exception of class ``kind``."""
    mode = f"{_DEMANDED if is_demanded else _FOUND}:{kind}"
    return bare(step)._replace(modes=(*bare(step).modes, mode), name="refusal", in_setup=False)


def refused_as(step: Step) -> str | None:
    """Return the class of what the reference raised where it refused a step, ``None`` of one that it carried out."""
    return next((mode.partition(":")[2] for mode in step.modes if is_refusal(mode)), None)


def is_demanded(step: Step) -> bool:
    """Whether the author wrote that a step must be refused."""
    return any(is_refusal(mode) and mode.startswith(_DEMANDED) for mode in step.modes)


def is_refusal(mode: str) -> bool:
    """Whether a mode says that the reference refused the step."""
    prefix, _, kind = mode.partition(":")
    return prefix in {_DEMANDED, _FOUND} and kind.isidentifier()


def bare(step: Step) -> Step:
    """Return a step as it is where nothing is caught."""
    return step._replace(modes=tuple(mode for mode in step.modes if not is_refusal(mode)))


def refusals(steps: Sequence[Step]) -> list[int]:
    """Return the indices of the steps that the reference refused."""
    return [index for index, step in enumerate(steps) if step.modes and refused_as(step) is not None]


def refused_outputs(program: Program) -> tuple[int, ...]:
    """Return the positions of the outputs that say how a step was refused."""
    return tuple(i for i, ref in enumerate(output_refs(program)) if refused_as(program.steps[ref.index]) is not None)


def ended_at(program: Program, index: int) -> Program:
    """Return a program up to step ``index`` of its body, whose value is all that it puts out."""
    output = Step(OUTPUT, "output", (Ref(index),), (), "output")
    return Program(program.setup, (*program.body[: index + 1 - len(program.setup)], output))


def bare_at_end(program: Program) -> Program:
    """Return a program whose last step is refused with nothing caught there: what ends it is the refusal."""
    last = len(program.body) - 2
    if last < 0 or refused_as(program.body[last]) is None:
        return program
    body = program.body
    return Program(program.setup, (*body[:last], bare(body[last]), body[-1]), program.cotangents)
