"""The part of a program that many cases share: everything except its placeholders' specs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    OUTPUT,
    PLACEHOLDER,
    Program,
    Ref,
    output_refs,
    ref_to,
    step_refs,
)
from ci_autotest.program.json_values import spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Step

_WRITES: Final = frozenset({
    "setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift",
    "irshift",
})  # fmt: skip
_ASSIGNS: Final = "builtins.setattr"


@dataclass(frozen=True)
class SharedProgram:
    """A program's steps, and the facts that follow from them whatever its placeholders are. Each is worked out once.

    Args:
        example: A program; its placeholders may lack their specs.
    """

    example: Program

    def program(self, specs: Sequence[list[Any]]) -> Program:
        """Return the program of a case.

        Args:
            specs: Spec of each placeholder as plain values, in order.
        """
        steps = list(self.example.steps)
        for index, spec in zip(self.placeholders, specs, strict=True):
            steps[index] = steps[index]._replace(args=(spec_of(spec),))
        count = len(self.example.setup)
        return Program(tuple(steps[:count]), tuple(steps[count:]))

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
        used = {ref.index for ref in self.outputs}
        for index in range(len(steps) - 1, -1, -1):
            # One pass backward is enough, because a step refers to earlier ones only.
            if index in used:
                used.update(ref.index for ref in step_refs(steps[index]))
        return frozenset(used)

    @cached_property
    def overwrites(self) -> bool:
        """Whether the spelling of any step says that it writes to its input."""
        return any(_writes(step, self.example.steps) for step in self.example.body)

    @cached_property
    def keeps_memory(self) -> bool:
        """Whether every leaf keeps its memory and its elements, as far as the spelling of the steps says."""
        return not self.overwrites and not any(step.target == _ASSIGNS for step in self.example.steps)

    @cached_property
    def arguments(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a call of the body and one of its arguments, by index."""
        return tuple(
            (index, ref.index)
            for index, step in enumerate(self.example.steps)
            if not step.in_setup and step.op not in {PLACEHOLDER, OUTPUT}
            for ref in step_refs(step)
        )


def _writes(step: Step, steps: Sequence[Step]) -> bool:
    """Whether the spelling of a step says that it writes to its input: ``add_``, ``+=``, ``inplace=True``."""
    name = step.target.rpartition(".")[2]
    maker = steps[step.args[0].index] if step.op == CALL_MODULE and isinstance(step.args[0], Ref) else step
    # ``nn.ReLU(inplace=True)`` says so where it is constructed, ``F.relu(x, inplace=True)`` where it is called.
    if dict(maker.kwargs).get("inplace") is True:
        return True
    if step.op == CALL_METHOD:
        # `__getitem__` and its like end with underscores too, and write nothing.
        return name.endswith("_") and not name.endswith("__")
    return step.op == CALL_FUNCTION and (name in _WRITES or (name.endswith("_") and not name.startswith("_")))
