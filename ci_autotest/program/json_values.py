"""Convert a program to plain JSON values and back, for the pipe between worker and host.

Both ends have the same version of this package, so the format has no version. A worker decodes strictly what a host
sends (``backends/remote/response.py``); a host trusts its worker.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ci_autotest.program.distribution import Distribution, is_mesh, is_placement
from ci_autotest.program.ir import (
    PLACEHOLDER,
    Copy,
    Device,
    DType,
    FrameworkConstant,
    List,
    Mapping_,
    Program,
    Ref,
    Slice,
    Step,
    TensorSpec,
)
from ci_autotest.program.refusal import Refusal
from ci_autotest.values.dtypes import DTYPES

#: Types that JSON holds unchanged; floats too, if they are finite.
_AS_IT_IS: Final = frozenset({int, bool, str, type(None)})


def plain_program(program: Program) -> list[Any]:
    """Return a program as JSON values."""
    return [len(program.setup), [_plain_step(step) for step in program.steps]]


def program_of(plain: list[Any]) -> Program:
    """Return the program of JSON values."""
    count, steps = plain
    found = tuple(_step_of(step, in_setup=i < count) for i, step in enumerate(steps))
    return Program(found[:count], found[count:])


def plain_outline(program: Program) -> list[Any]:
    """Return a program as JSON values without the specs of its placeholders, so that many cases of a test share it."""
    steps = (step._replace(args=()) if step.op == PLACEHOLDER else step for step in program.steps)
    return [len(program.setup), [_plain_step(step) for step in steps]]


def _plain_step(step: Step) -> list[Any]:
    kwargs = [[key, plain_argument(value)] for key, value in step.kwargs]
    args = [plain_argument(arg) for arg in step.args]
    return [step.op, step.target, args, kwargs, step.name, list(step.modes), step.seed]


def _step_of(plain: list[Any], *, in_setup: bool) -> Step:
    op, target, args, kwargs, name, modes, seed = plain
    named = tuple((key, argument_of(value)) for key, value in kwargs)
    if not isinstance(seed, int | None):
        message = f"a step's seed is {seed!r:.60}, and a number is expected."
        raise TypeError(message)
    return Step(op, target, tuple(map(argument_of, args)), named, name, tuple(modes), seed, in_setup)


def plain_argument(argument: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - one branch for each kind
    """Return an argument, or a plain value that a step returned, as JSON values.

    Raises:
        TypeError: A program cannot hold the value.
    """
    kind = type(argument)
    if kind in _AS_IT_IS or (kind is float and math.isfinite(argument)):
        return argument
    if kind is Ref:
        return ["ref", argument.index]
    # Only NaN and the infinities are left, which JSON does not have.
    if kind is float:
        return ["float", repr(argument)]
    if kind is Refusal:
        return ["refusal", str(argument), argument.said]
    if kind is complex:
        return ["complex", repr(argument.real), repr(argument.imag)]
    if kind is type(...):
        return ["..."]
    if isinstance(argument, DType):
        return ["dtype", argument.name]
    if isinstance(argument, Device):
        return ["device", argument.symbol]
    if isinstance(argument, FrameworkConstant):
        return ["constant", argument.target]
    if isinstance(argument, List):
        return ["list", *map(plain_argument, argument.items)]
    if isinstance(argument, tuple):
        return ["tuple", *map(plain_argument, argument)]
    if isinstance(argument, Mapping_):
        return ["mapping", *([key, plain_argument(value)] for key, value in argument.items)]
    if isinstance(argument, Slice):
        return ["slice", *map(plain_argument, (argument.start, argument.stop, argument.step))]
    if isinstance(argument, Copy):
        return ["copy", argument.ref.index]
    if isinstance(argument, TensorSpec):
        return ["spec", *plain_spec(argument)]
    message = f"a {kind.__name__} cannot be sent to a host."
    raise TypeError(message)


def plain_spec(spec: TensorSpec) -> list[Any]:
    """Return a tensor's spec as JSON values."""
    shape, strides = list(spec.shape), list(spec.strides)
    found = [spec.dtype, shape, strides, spec.offset, spec.storage_size, spec.requires_grad, spec.device]
    on = spec.distribution
    return found if on is None else [*found, list(on.mesh), list(on.placements)]


def argument_of(plain: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - one branch for each kind
    """Return the argument of JSON values.

    Raises:
        ValueError: The values are not an argument.
    """
    # Everything that is not a plain value was written as a list that begins with its kind.
    if not isinstance(plain, list):
        return plain
    kind, *rest = plain
    match kind:
        case "ref":
            return Ref(rest[0])
        case "float":
            return float(rest[0])
        case "complex":
            return complex(float(rest[0]), float(rest[1]))
        case "...":
            return ...
        case "refusal":
            return Refusal(str(rest[0]), str(rest[1]))
        case "dtype":
            return DType(rest[0])
        case "device":
            return Device(rest[0])
        case "constant":
            return FrameworkConstant(rest[0])
        case "list":
            return List(tuple(map(argument_of, rest)))
        case "tuple":
            return tuple(map(argument_of, rest))
        case "mapping":
            return Mapping_(tuple((key, argument_of(value)) for key, value in rest))
        case "slice":
            return Slice(*map(argument_of, rest))
        case "copy":
            return Copy(Ref(rest[0]))
        case "spec":
            return spec_of(rest)
        case _:
            message = f"{kind!r} is not a kind of argument."
            raise ValueError(message)


def spec_of(plain: list[Any]) -> TensorSpec:
    """Return a tensor's spec.

    Raises:
        ValueError: The values are not a spec.
    """
    dtype, shape, strides, offset, size, requires_grad, device, *lies = plain
    # `isinstance` would accept booleans, which are integers in Python.
    if dtype not in DTYPES or not all(type(number) is int for number in (*shape, *strides, offset, size)):
        message = f"{plain!r:.80} is not a tensor's spec."
        raise ValueError(message)
    on = _distribution_of(*lies) if lies else None
    return TensorSpec(dtype, tuple(shape), tuple(strides), offset, size, requires_grad, device, on)


def _distribution_of(mesh: Any, placements: Any) -> Distribution:
    if (
        not all(type(size) is int for size in mesh)
        or not is_mesh(tuple(mesh))
        or not all(map(is_placement, placements))
    ):
        message = f"{placements!r:.80} on a mesh {mesh!r:.80} is not a distribution."
        raise ValueError(message)
    return Distribution(tuple(mesh), tuple(placements))
