"""A recording: a program with its data, what the reference gives, and a note of where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ci_autotest.program.note import Note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Argument, Program, TensorSpec


@dataclass(frozen=True, slots=True)
class Recording:
    """A program with its data.

    Args:
        tensors: Storage of each placeholder and cotangent by key: little-endian bytes of
            ``storage_size`` elements.
        note: Its origin (test, case, seed, draws) and what a repro needs of the candidate.
        expected: Tensors that the reference gives, by ``output_<i>``, ``gradient_<step>`` and, if its run has
            changed an input or a state, ``after_<step>``. Their data are in ``tensors`` too.
        facts: Other results of the reference, by the same names: a tensor's flags as a ``Mapping_``, a value that is
            not a tensor, or ``None`` for a missing gradient.
        digests: sha256 of the tensors whose data were not read, in hexadecimal.
    """

    program: Program
    tensors: Mapping[str, bytes]
    note: Note = field(default_factory=Note)
    expected: Mapping[str, TensorSpec] = field(default_factory=dict)
    facts: Mapping[str, Argument] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def with_program(self, program: Program, changed: Mapping[str, bytes] | None = None) -> Recording:
        """Return an edited program with its data, of which some may have changed, and the note.

        The reference's results belong to the program before the edit; they are computed again.
        """
        tensors = {**self.tensors, **(changed or {})}
        return Recording(program, {key: tensors[key] for key in program.specs}, self.note)
