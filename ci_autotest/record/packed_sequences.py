"""Packed sequences: torch's named tuple of four tensors, which recurrent layers recognise by its class.

The fields of a recorded one are recorded values. As an argument it refers to the step that returned it as a whole. If
plain torch assembles one from recorded values, a step is recorded that assembles it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from torch.nn.utils.rnn import PackedSequence

from ci_autotest.program.ir import CALL_FUNCTION, PACKED, Ref, Step
from ci_autotest.record.modes import modes as modes_in_force

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ci_autotest.record.recorder import Recorder

_NAME: Final = "packed"


class RecordedPacked(PackedSequence):
    """A packed sequence of the reference, as the body sees it.

    Attributes:
        real: The reference's packed sequence; ``None`` if a method of torch derived this one from another.
        ref: The step that returned it.
    """

    real: PackedSequence | None = None
    ref: Ref | None = None


def recorded(real: PackedSequence, ref: Ref, items: Iterable[Any]) -> RecordedPacked:
    """Return the packed sequence for the body, without torch's constructor, which would read the recorded fields."""
    found: RecordedPacked = tuple.__new__(RecordedPacked, items)
    found.real, found.ref = real, ref
    return found


def argument(recorder: Recorder, value: PackedSequence, real: list[Any], recorded: list[Any]) -> tuple[Any, Any]:
    """Return a packed sequence as an argument: for the reference, and in the step.

    Args:
        recorder: The recorder of the attempt.
        value: The argument of the body.
        real: Its fields on the reference.
        recorded: Its fields in a step.
    """
    if isinstance(value, RecordedPacked) and value.ref is not None:
        return value.real, value.ref
    step = Step(CALL_FUNCTION, PACKED, tuple(recorded), (), _NAME, modes_in_force())
    made = recorder.run(step, PackedSequence, real, {})
    return made.real, made.ref
