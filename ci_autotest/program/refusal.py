"""Refused steps: calls that raised on the reference. Every side tries such a step and continues.

The refusal is a mode of the step, so that shrinking cannot leave a block unbalanced: ``raises:RuntimeError`` if the
author requires the exception, ``refuses:RuntimeError`` if the recording saw it. The step's value is how a side refused
it. Sides are compared by whether they refuse, never by the text of the exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.errors import error_text
from ci_autotest.program.edit import replaced
from ci_autotest.program.ir import Program, Step, output_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

_DEMANDED: Final = "raises"
_FOUND: Final = "refuses"


class Refusal(str):
    """How a side refused a step: the exception's nearest builtin class; empty if the step was accepted.

    Attributes:
        said: The exception's message, for readers; it is never compared.
    """

    __slots__ = ("said",)

    said: str

    def __new__(cls, kind: str = "", said: str = "") -> Self:
        """Return a string with the message as an attribute."""
        found = super().__new__(cls, kind)
        found.said = said
        return found


#: The value of a step that the reference refused and this side accepted.
ACCEPTED: Final = Refusal()


def refusal_of(error: BaseException) -> Refusal:
    """Return the value of the step that raised an exception."""
    # A framework's own class has no counterpart on the other side, but the builtin that it derives from has.
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return Refusal(kind, error_text(error))


def refused(step: Step, kind: str, *, is_demanded: bool = False) -> Step:
    """Mark a step as refused by the reference with an exception of class ``kind``."""
    # A step is marked once: an earlier mark is replaced.
    mode = f"{_DEMANDED if is_demanded else _FOUND}:{kind}"
    return bare(step)._replace(modes=(*bare(step).modes, mode), name="refusal", in_setup=False)


def refused_as(step: Step) -> str | None:
    """Return the class of the exception with which the reference refused a step; ``None`` if it accepted it."""
    return next((mode.partition(":")[2] for mode in step.modes if is_refusal(mode)), None)


def is_demanded(step: Step) -> bool:
    """Whether the author requires that the step is refused."""
    return any(is_refusal(mode) and mode.startswith(_DEMANDED) for mode in step.modes)


def is_refusal(mode: str) -> bool:
    """Whether a mode marks a refused step."""
    prefix, _, kind = mode.partition(":")
    # Modes are also read from files, so the class must be a name and no other text.
    return prefix in {_DEMANDED, _FOUND} and kind.isidentifier()


def bare(step: Step) -> Step:
    """Return a step without the mark of a refusal, so that an exception is not caught."""
    return step._replace(modes=tuple(mode for mode in step.modes if not is_refusal(mode)))


def refusals(steps: Sequence[Step]) -> list[int]:
    """Return the indices of the steps that the reference refused."""
    return [index for index, step in enumerate(steps) if step.modes and refused_as(step) is not None]


def refused_outputs(program: Program) -> tuple[int, ...]:
    """Return the positions of the outputs whose value is a refusal."""
    return tuple(i for i, ref in enumerate(output_refs(program)) if refused_as(program.steps[ref.index]) is not None)


def bare_at_end(program: Program) -> Program:
    """Return the program with a refused last step unmarked, so that its exception ends the program."""
    last = len(program.steps) - 2
    if last < program.start or refused_as(program.steps[last]) is None:
        return program
    return replaced(program, {last: bare(program.steps[last])})
