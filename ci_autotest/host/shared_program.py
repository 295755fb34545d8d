"""The part of a program that many cases share: everything except its placeholders' specs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.program.edit import follows_from
from ci_autotest.program.ir import PLACEHOLDER, Program, Ref, output_refs, ref_to, step_refs
from ci_autotest.program.json_values import spec_of
from ci_autotest.program.written_values import written_values

if TYPE_CHECKING:
    from collections.abc import Sequence


_ASSIGNS: Final = "builtins.setattr"


@dataclass(frozen=True)
class SharedProgram:
    """A program's steps, and the facts that follow from them whatever its placeholders are. Each is worked out once.

    Args:
        example: A program; its placeholders may lack their specs.
    """

    example: Program

    def program(self, specs: Sequence[dict[str, Any]]) -> Program:
        """Return the program of a case.

        Args:
            specs: Spec of each placeholder as plain values, in order.
        """
        steps = list(self.example.steps)
        for index, spec in zip(self.placeholders, specs, strict=True):
            steps[index] = steps[index]._replace(args=(spec_of(spec),))
        return Program.of(steps)

    @cached_property
    def placeholders(self) -> tuple[int, ...]:
        """Indices of the placeholders."""
        return tuple(i for i, step in enumerate(self.example.steps) if step.op == PLACEHOLDER)

    @cached_property
    def outputs(self) -> tuple[Ref, ...]:
        """The values that the body returns, in order."""
        return output_refs(self.example)

    @cached_property
    def ends_in_output(self) -> bool:
        """Whether the body returns the value of its last step and nothing else."""
        return self.example.body[-1].args == (ref_to(len(self.example.steps) - 2),)

    @cached_property
    def used(self) -> frozenset[int]:
        """Indices of the steps that the output depends on."""
        steps = self.example.steps
        return frozenset(follows_from(steps, len(steps) - 1) - {len(steps) - 1})

    @cached_property
    def overwrites(self) -> bool:
        """Whether the spelling of any step says that it writes to its input."""
        steps = self.example.steps
        # Functions have the framework's names, among which an underscore at the end says that one writes.
        return any(written_values(step, steps) or _says_so(step.target) for step in steps)

    @cached_property
    def keeps_memory(self) -> bool:
        """Whether every leaf keeps its memory and its elements, as far as the spelling of the steps says."""
        return not self.overwrites and not any(step.target == _ASSIGNS for step in self.example.steps)

    @cached_property
    def arguments(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a call of the body and one of its arguments, by index."""
        return tuple(
            (index, ref.index) for index, step in self.example.numbered if step.is_call for ref in step_refs(step)
        )


def _says_so(target: str) -> bool:
    # The underscore of `operator.and_` only tells it from a keyword.
    return target.endswith("_") and not target.endswith("__") and not target.startswith("operator.")
