"""Arguments, specs and programs as JSON values: the one codec, for files and for the pipe between worker and host.

A plain value is itself, and everything else is an object with one key that says its kind. Reading is strict. This
module runs in hosts, which have the standard library and numpy only.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ci_autotest.program.distribution import Distribution, is_mesh, is_placement
from ci_autotest.program.ir import (
    BUFFER,
    PARAMETER,
    PLACEHOLDER,
    Argument,
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
#: Each level is a call, so that a hostile file could otherwise exhaust Python's stack.
_DEPTH: Final = 16
#: Keys of a spec that it has always, and the types of their values.
_SPEC_KEYS: Final = {
    "dtype": str, "shape": list, "strides": list, "offset": int, "storage_size": int, "requires_grad": bool,
    "device": str,
}  # fmt: skip
_MORE_SPEC_KEYS: Final = {"distribution": dict, "state": str, "placements": list}


def plain_program(program: Program) -> list[Any]:
    """Return a program as JSON values."""
    return [program.start, [_plain_step(step) for step in program.steps]]


def program_of(plain: list[Any]) -> Program:
    """Return the program of JSON values."""
    count, steps = plain
    found = tuple(_step_of(step, in_setup=i < count) for i, step in enumerate(steps))
    return Program(found[:count], found[count:])


def plain_outline(program: Program) -> list[Any]:
    """Return a program as JSON values without the specs of its placeholders, so that many cases of a test share it."""
    steps = (step._replace(args=()) if step.op == PLACEHOLDER else step for step in program.steps)
    return [program.start, [_plain_step(step) for step in steps]]


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


def plain_result(value: Any) -> Any:
    """Return what a step returned, if it is no tensor, as JSON values.

    Raises:
        TypeError: A program cannot hold the value.
    """
    return {"refusal": [str(value), value.said]} if type(value) is Refusal else plain_argument(value)


def result_of(plain: Any) -> Any:
    """Return what a step returned.

    Raises:
        ValueError: The JSON values are not one.
    """
    match plain:
        case {"refusal": [str(kind), str(said)]}:
            return Refusal(kind, said)
        case _:
            return argument_of(plain)


def plain_argument(argument: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - one arm per kind of argument
    """Return an argument as JSON values.

    Raises:
        TypeError: A program cannot hold the value.
    """
    if type(argument) in _AS_IT_IS:
        return argument
    match argument:
        # Of a class of the author's, or a refusal, of which a file keeps the kind.
        case int():
            return int(argument)
        case str():
            return str(argument)
        case float():
            return argument if math.isfinite(argument) else {"float": str(argument)}
        case complex():
            return {"complex": [plain_argument(argument.real), plain_argument(argument.imag)]}
        case Ref(index):
            return {"ref": index}
        case DType(name):
            return {"dtype": name}
        case Device(symbol):
            return {"device": symbol}
        case FrameworkConstant(target):
            return {"constant": target}
        case tuple():
            return {"tuple": [plain_argument(item) for item in argument]}
        case List(items):
            return {"list": [plain_argument(item) for item in items]}
        case Mapping_(items):
            return {"mapping": [[key, plain_argument(value)] for key, value in items]}
        case Slice(start, stop, step):
            return {"slice": [plain_argument(start), plain_argument(stop), plain_argument(step)]}
        case Copy(ref):
            return {"copy": ref.index}
        case TensorSpec():
            return {"tensor": plain_spec(argument)}
        case _ if argument is ...:
            return {"ellipsis": True}
        case _:
            message = f"a {type(argument).__name__} cannot be sent to a host."
            raise TypeError(message)


def plain_spec(spec: TensorSpec) -> dict[str, Any]:
    """Return a tensor's spec as JSON values."""
    plain: dict[str, Any] = {
        "dtype": spec.dtype, "shape": list(spec.shape), "strides": list(spec.strides), "offset": spec.offset,
        "storage_size": spec.storage_size, "requires_grad": spec.requires_grad, "device": spec.device,
    }  # fmt: skip
    if spec.distribution is not None:
        on = spec.distribution
        plain["distribution"] = {"mesh": list(on.mesh), "placements": list(on.placements)}
    if spec.state:
        plain["state"] = spec.state
    if spec.placements:
        plain["placements"] = list(spec.placements)
    return plain


def argument_of(plain: Any, depth: int = 0) -> Argument:  # noqa: C901, PLR0911, PLR0912 - one arm per kind of argument
    """Return the argument of JSON values.

    Raises:
        ValueError: The values are not an argument.
    """
    if depth > _DEPTH:
        message = f"arguments that are nested more than {_DEPTH} deep"
        raise ValueError(message)
    # A mapping pattern of `match` also accepts mappings with more keys than it names.
    if isinstance(plain, dict) and len(plain) != 1:
        message = f"an argument with {len(plain)} keys: {str(plain)[:80]!r}"
        raise ValueError(message)
    match plain:
        case None | bool() | int() | float() | str():
            return plain
        case {"ref": int(index)}:
            return Ref(index)
        case {"copy": int(index)}:
            return Copy(Ref(index))
        case {"float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"complex": [real, imag]}:
            parts = [argument_of(part, depth + 1) for part in (real, imag)]
            # Otherwise the message at the end is raised.
            if all(isinstance(part, int | float) for part in parts):
                return complex(*parts)  # type: ignore[arg-type]
        case {"dtype": str(name)} if name in DTYPES:
            return DType(name)
        case {"device": "cpu" | "device" as symbol}:
            return Device(symbol)
        case {"constant": str(target)}:
            return FrameworkConstant(target)
        case {"tuple": list(items)}:
            return tuple(argument_of(item, depth + 1) for item in items)
        case {"list": list(items)}:
            return List(tuple(argument_of(item, depth + 1) for item in items))
        case {"mapping": list(items)}:
            return Mapping_(tuple((name, argument_of(value, depth + 1)) for name, value in map(_pair, items)))
        case {"slice": [start, stop, step]}:
            return Slice(*(argument_of(bound, depth + 1) for bound in (start, stop, step)))
        case {"tensor": dict(spec)}:
            return spec_of(spec)
        case {"ellipsis": True}:
            return ...
        case _:
            pass
    message = f"an argument of an unknown kind: {str(plain)[:80]!r}"
    raise ValueError(message)


def _pair(plain: Any) -> tuple[str, Any]:
    match plain:
        case [str(key), value]:
            return key, value
        case _:
            message = "a mapping that is not a list of pairs"
            raise ValueError(message)


def spec_of(plain: dict[str, Any]) -> TensorSpec:
    """Return a tensor's spec.

    Raises:
        ValueError: The values are not a spec.
    """
    known = _SPEC_KEYS | _MORE_SPEC_KEYS
    if _SPEC_KEYS.keys() - plain.keys() or any(
        type(value) is not known.get(key) or (type(value) is list and not _is_flat(key, value))
        for key, value in plain.items()
    ):
        message = f"no valid tensor spec: {str(plain)[:120]}"
        raise ValueError(message)
    if plain["dtype"] not in DTYPES or plain.get("state", "") not in {"", PARAMETER, BUFFER}:
        message = f"no valid tensor spec: dtype {plain['dtype'][:40]!r}, state {plain.get('state', '')[:40]!r}"
        raise ValueError(message)
    on = plain.get("distribution")
    return TensorSpec(
        plain["dtype"], tuple(plain["shape"]), tuple(plain["strides"]), plain["offset"], plain["storage_size"],
        plain["requires_grad"], plain["device"],
        None if on is None else _distribution_of(on), plain.get("state", ""), tuple(plain.get("placements", ())),
    )  # fmt: skip


def _is_flat(key: str, items: list[Any]) -> bool:
    kind = str if key == "placements" else int
    return all(type(item) is kind for item in items)


def _distribution_of(plain: dict[str, Any]) -> Distribution:
    match plain:
        case {"mesh": list(mesh), "placements": list(placements)} if len(plain) == 2:  # noqa: PLR2004 - these keys
            is_valid = (
                all(type(size) is int for size in mesh)
                and is_mesh(tuple(mesh))
                and all(isinstance(each, str) and is_placement(each) for each in placements)
            )
            if is_valid:
                return Distribution(tuple(mesh), tuple(placements))
        case _:
            pass
    message = f"{str(plain)[:80]} is not a distribution"
    raise ValueError(message)
