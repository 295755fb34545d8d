"""What DTensor says that it cannot do. An error of its own Python code is a refusal; one of a kernel never is."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch.distributed
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from ci_autotest.backends.devices import lacking
from ci_autotest.errors import NotCarriedError, Unsupported, UnsupportedReason, error_text, is_of_library

if TYPE_CHECKING:
    from types import CodeType

_DISTRIBUTED: Final = Path(torch.distributed.__file__).resolve().parent
_RULES: Final = _DISTRIBUTED / "tensor"
_SIMULATION: Final = _DISTRIBUTED / "_local_tensor"
#: What PyTorch raises where a result's sizes or a number depend on data, so that DTensor cannot know them.
_DATA_DEPENDENT: Final = (DataDependentOutputException, DynamicOutputShapeException)
#: What DTensor and the simulation raise where they refuse. An IndexError or a failed assertion is a fault.
_REFUSALS: Final = (NotImplementedError, RuntimeError, ValueError)


def refusal_of_ranks(error: BaseException) -> Unsupported | None:
    """Return why ranks cannot run a step, if the error says so; ``None`` if it is an error of the step."""
    first = _first(error)
    code = _innermost(first)
    if isinstance(first, NotCarriedError):
        return first.why
    if isinstance(first, _DATA_DEPENDENT):
        return Unsupported(UnsupportedReason.NO_SHARDING_RULE, f"its result depends on data: {sentence_of(first)}")
    if code is None or is_of_library(first):
        return lacking(error)
    folders = Path(code.co_filename).parents
    if not isinstance(first, _REFUSALS):
        return lacking(error)
    if _SIMULATION in folders:
        return Unsupported(UnsupportedReason.NOT_SIMULATED, sentence_of(error))
    if _RULES in folders:
        is_missing = isinstance(first, NotImplementedError)
        reason = UnsupportedReason.NO_SHARDING_RULE if is_missing else UnsupportedReason.PLACEMENT_REFUSED
        return Unsupported(reason, sentence_of(first))
    return lacking(error)


def _first(error: BaseException) -> BaseException:
    """Return the error that was raised first: DTensor adds the placements in an error raised from it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _innermost(error: BaseException) -> CodeType | None:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1].f_code if frames else None


def sentence_of(error: BaseException) -> str:
    """Return the first line of an error."""
    return error_text(error).strip().partition("\n")[0][:300] or type(error).__name__
