"""Refuse what no table can translate: hooks, autocast, and modules that draw random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.operators.signatures import forms
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    HOOK,
    REGISTERS,
    Ref,
    autocast_dtype,
    step_refs,
)
from ci_autotest.program.refusal import refusals
from ci_autotest.values.dtypes import FLOAT8

if TYPE_CHECKING:
    from ci_autotest.backends.mapping.table import MappingTable
    from ci_autotest.program.ir import Program, Step

#: Arguments of module constructors that are the probability of dropping an element.
_PROBABILITIES: Final = ("dropout", "p")
_DROPS: Final = ("Dropout", "AlphaDropout", "FeatureAlphaDropout", "Dropout1d", "Dropout2d", "Dropout3d")
#: Modules that draw in training whatever their arguments are.
_DRAW: Final = frozenset({"RReLU", "FractionalMaxPool2d", "FractionalMaxPool3d"})


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
        UnsupportedError: A called module, or a part of it, drops elements and is in training mode.
    """
    setup = program.setup
    if not setup:
        return
    drawing = {i for i, step in enumerate(setup) if _draws(step)}
    if not drawing:
        return
    steps = program.steps
    for index, step in enumerate(setup):
        if step.op == CALL_FUNCTION and any(ref.index in drawing for ref in step_refs(step)):
            drawing.add(index)  # A container draws if one of its parts does.
        elif step.op == CALL_METHOD and step.target == "get_submodule" and _receiver(step) in drawing:
            drawing.add(index)
    for step in steps:
        if step.op == CALL_METHOD and step.target in {"eval", "train"} and _receiver(step) in drawing:
            mode = step.args[1] if len(step.args) > 1 else dict(step.kwargs).get("mode", True)
            if step.target == "eval" or not mode:
                drawing.discard(_receiver(step))
        elif step.op == CALL_MODULE and _receiver(step) in drawing:
            message = (
                f"{step.target} draws random numbers in training, and {table.label} draws different ones from the same "
                "seed."
            )
            raise UnsupportedError(message, step.target)


def _receiver(step: Step) -> int:
    first = step.args[0]
    return first.index if isinstance(first, Ref) else -1


def _draws(step: Step) -> bool:
    name = step.target.rpartition(".")[2]
    if step.op != CALL_FUNCTION or not step.target.startswith("torch.nn.") or not name[:1].isupper():
        return False
    if name in _DRAW:
        return True
    given: dict[str, Any] = dict(step.kwargs)
    for form in forms(step.target, step.op):
        names = [parameter.name for parameter in form]
        bound = (
            {parameter.name: parameter.default for parameter in form}
            | dict(zip(names, step.args, strict=False))
            | given
        )
        return any(bound.get(key) not in {None, 0} for key in _PROBABILITIES if _is_probability(key, name))
    return False


def _is_probability(key: str, name: str) -> bool:
    return key == "dropout" or name in _DROPS
