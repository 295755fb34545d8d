"""Packed sequences: torch's tuple of four tensors, recognised by recurrent layers by its class.

A body holds one whose fields are recorded values; as an argument it is the step that gave the whole. One that plain
torch put together of recorded values is put together by a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from torch.nn.utils.rnn import PackedSequence

from ci_autotest.program.ir import CALL_FUNCTION, PACKED, Ref, Step
from ci_autotest.record.modes import modes as modes_in_force

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ci_autotest.record.protocol import Recorder

_NAME: Final = "packed"


class RecordedPacked(PackedSequence):
    """Stand for a packed sequence of the reference.

    Attributes:
        real: The reference's; ``None`` where a method of torch's made this one of another.
        ref: The step that gave it.
    """

    real: PackedSequence | None = None
    ref: Ref | None = None


def recorded(real: PackedSequence, ref: Ref, items: Iterable[Any]) -> RecordedPacked:
    """Return what a body holds; torch's own constructor would read the fields, which are values."""
    found: RecordedPacked = tuple.__new__(RecordedPacked, items)
    found.real, found.ref = real, ref
    return found


def argument(recorder: Recorder, value: PackedSequence, real: list[Any], said: list[Any]) -> tuple[Any, Any]:
    """Return what the reference gets and what the step says of a packed sequence.

    Args:
        recorder: Of the attempt.
        value: As the body gave it.
        real: Its fields on the reference.
        said: Its fields in a step.
    """
    if isinstance(value, RecordedPacked) and value.ref is not None:
        return value.real, value.ref
    step = Step(CALL_FUNCTION, PACKED, tuple(said), (), _NAME, modes_in_force())
    made = recorder.run(step, PackedSequence, real, {})
    return made.real, made.ref
