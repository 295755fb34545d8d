"""Refuse what no table can translate: hooks, autocast, and modules that draw random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import HOOK, REGISTERS, autocast_dtype
from ci_autotest.program.random_calls import drawing_modules
from ci_autotest.program.refusal import refusals
from ci_autotest.values.dtypes import FLOAT8

if TYPE_CHECKING:
    from ci_autotest.backends.mapping.table import MappingTable
    from ci_autotest.program.ir import Program, Step


def refuse_foreign(step: Step, table: MappingTable) -> None:
    """Refuse a step in a mode that means something else in another framework.

    Raises:
        UnsupportedError: The step belongs to a hook, or runs under autocast in a framework that is not like torch.
    """
    if HOOK[0] in step.modes or REGISTERS[0] in step.modes:
        message = f"hooks on gradients are not translated to {table.label}."
        raise UnsupportedError(message, "torch.Tensor.register_hook")
    # Frameworks cast the inputs of different operators under autocast, so results would differ by definition.
    if not table.like_torch and any(autocast_dtype(mode) for mode in step.modes):
        message = f"autocast is not translated to {table.label}, whose own casts the inputs of other operators."
        raise UnsupportedError(message, "torch.autocast")


def refuse_float8(program: Program, table: MappingTable) -> None:
    """Refuse a program with an input of 8 bits, which few frameworks have and NumPy cannot hold.

    Raises:
        UnsupportedError: The program has such an input.
    """
    for step in program.steps:
        spec = step.spec
        if spec is not None and spec.dtype in FLOAT8:
            message = f"tensors of {spec.dtype} are not passed to {table.label or 'another interpreter'}."
            raise UnsupportedError(message, "torch.Tensor.to")


def refuse_refusals(program: Program, table: MappingTable) -> None:
    """Refuse a program whose body goes on after an expected refusal: its translation takes several steps.

    Raises:
        UnsupportedError: The program has such a step.
    """
    for index in refusals(program.steps):
        message = f"a body that goes on after an expected refusal is not translated to several steps of {table.label}."
        raise UnsupportedError(message, program.steps[index].target)


def refuse_random_modules(program: Program, table: MappingTable) -> None:
    """Refuse a program with a module that draws random numbers in its forward.

    Raises:
        UnsupportedError: A called module, or a part of it, draws random numbers in its mode.
    """
    for index in sorted(drawing_modules(program)):
        target = program.steps[index].target
        message = (
            f"{target} draws random numbers in training, and {table.label} draws different ones from the same seed."
        )
        raise UnsupportedError(message, target)
