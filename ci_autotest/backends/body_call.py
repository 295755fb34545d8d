"""Calls of whole bodies, as a user would write them, to be timed: nothing of the harness is in the measured time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from ci_autotest.program.codegen import inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Program

BodyCall: TypeAlias = "Callable[[], Sequence[Any]]"


class BodyCalls(NamedTuple):
    """What a backend has to be timed.

    Attributes:
        own: Runs the body once on the candidate and returns its outputs.
        against: Runs it as the candidate is measured against; ``None`` takes the reference's own call.
        is_original: Whether ``against`` is what the candidate was made from, not the reference.
    """

    own: BodyCall
    against: BodyCall | None = None
    is_original: bool = False


def versions(values: Sequence[Any]) -> list[int]:
    """Return the version of each tensor among a program's values; a write raises it."""
    return [value._version for value in values if isinstance(value, torch.Tensor)]


def called_with(function: Callable[..., Any], program: Program, values: Sequence[Any]) -> BodyCall:
    """Return a call of a body's function with its inputs out of ``values``."""
    return partial(function, *(values[index] for _, index in inputs(program)))
