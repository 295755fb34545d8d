"""Arguments of recorded calls: each is split into the value for the reference and the value for the step.

Generators are drawn here, with the type that their callee expects. A keyword whose value is ``nothing()`` is left out.

The type of an argument of a built-in function is taken from torch's operator schemas. The rule (SEMANTICS, 18): the
overloads that match the other arguments decide. If they agree on a type, the argument has this type. If none matches,
or if they disagree, the type is unknown and the author has to write it.

A packed sequence is torch's named tuple of four tensors, which recurrent layers recognise by its class. The fields of a
recorded one are recorded values. As an argument it refers to the step that returned it as a whole. If plain torch
assembles one from recorded values, the assembly is recorded as a step.
"""

from __future__ import annotations

from contextlib import suppress
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.operators.signatures import bound_to, overloads, python_parameters
from ci_autotest.backends.torch_constants import argument_of
from ci_autotest.errors import ArgumentError, AuthorError, UntypedError
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    OWN_DEVICE,
    PACKED,
    PLAIN_TYPES,
    Device,
    List,
    Mapping_,
    Ref,
    Slice,
    Step,
)
from ci_autotest.record.draw.generators import NOTHING, Generator
from ci_autotest.record.modes import modes as modes_in_force
from ci_autotest.record.modules import RecordedModule
from ci_autotest.record.skips import Unavailable
from ci_autotest.record.unsupported_uses import stale
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ci_autotest.backends.operators.signatures import Parameter
    from ci_autotest.record.function import Function
    from ci_autotest.record.recorder import Recorder

_ARGUMENTS: Final = "Pass tensors, numbers, strings, dtypes, devices, slices, or lists and tuples of them."
_OF_AN_ARRAY: Final = "Write torch.from_numpy(array), which makes its elements an input."
_PACKED_NAME: Final = "packed"
#: Placeholder for the tensor whose method is called.
RECEIVER: Final = object()
#: The type of a drawn number by the type in the schema; a list of known length takes one number for all its elements.
_NUMBERS: Final[dict[str, object]] = {"int": int, "float": float, "bool": bool, "number": int | float}


def split(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    callee: Function | Callable[..., Any] | None,
    name: str = "",
) -> tuple[list[Any], tuple[Any, ...], dict[str, Any], tuple[tuple[str, Any], ...]]:
    """Return ``(real args, step args, real kwargs, step kwargs)`` of a call.

    Raises:
        AuthorError: The type of a generator is unknown, or ``nothing()`` replaces an argument without a default.
    """
    real_args: list[Any] = []
    step_args: list[Any] = []
    # Most arguments are recorded values and plain numbers, so these take a fast path; any other value leaves the loop.
    for arg in args:
        kind = type(arg)
        if kind is RecordedTensor:
            if arg._recorder is not recorder:
                stale()
            real_args.append(arg._tensor)
            step_args.append(arg._ref)
        elif kind in PLAIN_TYPES:
            real_args.append(arg)
            step_args.append(arg)
        else:
            args, kwargs = _positional_drawn(recorder, args, kwargs, callee, name)
            real_args, step_args = _each(recorder, args)
            break
    if not kwargs:
        return real_args, tuple(step_args), {}, ()
    real_kwargs = {}
    step_kwargs = []
    for key, value in kwargs.items():
        drawn = _drawn(recorder, value, callee, key, name, (args, kwargs)) if isinstance(value, Generator) else value
        if drawn is not NOTHING:
            real_kwargs[key], recorded = one(recorder, drawn)
            step_kwargs.append((key, recorded))
    return real_args, tuple(step_args), real_kwargs, tuple(step_kwargs)


def _each(recorder: Recorder, values: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    pairs = [one(recorder, value) for value in values]
    return [real for real, _ in pairs], [recorded for _, recorded in pairs]


def one(recorder: Recorder, value: Any) -> tuple[Any, Any]:
    """Return one argument as ``(value for the reference, value in the step)``."""
    kind = type(value)
    if kind in PLAIN_TYPES:
        return value, value
    if kind is RecordedTensor:
        if value._recorder is not recorder:
            stale()
        return value._tensor, value._ref
    if isinstance(value, RecordedModule):
        return value.real, value.ref
    if isinstance(value, Generator):
        return one(recorder, value.value(recorder.drawer))
    if isinstance(value, tuple | list):
        return _sequence(recorder, value)
    if isinstance(value, slice):
        real, recorded = _each(recorder, (value.start, value.stop, value.step))
        return slice(*real), Slice(*recorded)
    if isinstance(value, np.generic):
        return one(recorder, value.item())
    return _constant(recorder, value)


def _sequence(recorder: Recorder, value: tuple[Any, ...] | list[Any]) -> tuple[Any, Any]:
    if isinstance(value, torch.Size):
        return value, tuple(value)
    real, recorded = _each(recorder, value)
    if isinstance(value, PackedSequence):
        return _packed_argument(recorder, value, real, recorded)
    return (real, List(tuple(recorded))) if isinstance(value, list) else (tuple(real), tuple(recorded))


def _constant(recorder: Recorder, value: Any) -> tuple[Any, Any]:
    constant = argument_of(value)
    if constant is not None:
        return value, constant
    if isinstance(value, Device):
        return recorder.device if value.symbol == OWN_DEVICE else torch.device("cpu"), value
    if isinstance(value, torch.Tensor):
        # A tensor that the body made with plain torch becomes an input of the program.
        captured = recorder.capture(value)
        return captured._tensor, captured._ref
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        real, recorded = _each(recorder, value.values())
        return dict(zip(value, real, strict=True)), Mapping_(tuple(zip(value, recorded, strict=True)))
    if isinstance(value, Unavailable):
        value.refuse()
    message = f"a {type(value).__name__} cannot be an argument of a recorded call: {str(value)[:80]!r}. " + (
        _OF_AN_ARRAY if isinstance(value, np.ndarray) else _ARGUMENTS
    )
    raise AuthorError(message)


def _positional_drawn(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    callee: Function | Callable[..., Any] | None,
    name: str,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Draw positional generators. Arguments after a ``nothing()`` become keywords, which needs the callee's names."""
    drawn = [
        _drawn(recorder, arg, callee, position, name, (args, kwargs)) if isinstance(arg, Generator) else arg
        for position, arg in enumerate(args)
    ]
    # Filtered by type first, because `==` of a recorded value would record a step.
    if NOTHING not in [item for item in drawn if isinstance(item, type(NOTHING))]:
        return tuple(drawn), kwargs
    first = next(i for i, item in enumerate(drawn) if item is NOTHING)
    _refuse_without_default(callee, name, drawn)
    rest = drawn[first:]
    if all(item is NOTHING for item in rest):
        return tuple(drawn[:first]), kwargs
    names = [parameter.name for parameter in _parameters(callee)]
    if len(names) < len(drawn):
        message = f"nothing() comes before another positional argument of {_label(callee, name)}. Write keywords."
        raise AuthorError(message)
    named = {names[first + i]: item for i, item in enumerate(rest) if item is not NOTHING}
    return tuple(drawn[:first]), {**named, **kwargs}


def _drawn(
    recorder: Recorder,
    generator: Generator,
    callee: Function | Callable[..., Any] | None,
    key: int | str,
    name: str,
    given: tuple[tuple[Any, ...], dict[str, Any]],
) -> Any:
    wanted = _annotation(callee, key)
    if wanted is None or wanted is type(None):  # torch annotates its broadcast lists with None
        wanted = _deferred(callee, key, name, given)
    try:
        return generator.value(recorder.drawer, wanted)
    except UntypedError as error:
        _refuse_unknown(callee, key, name)
        message = f"argument {key!r} of {_label(callee, name)}: {error}"
        raise AuthorError(message) from None


def _refuse_unknown(callee: Function | Callable[..., Any] | None, key: int | str, name: str) -> None:
    """Refuse a drawn keyword that the callee does not have, because a message about its unknown type would mislead.

    Raises:
        ArgumentError: Python knows the callee's parameters, and it has no such parameter.
    """
    parameters = _parameters(callee) if isinstance(key, str) and callee is not None else []
    if not parameters or any(each.name == key or each.kind == each.VAR_KEYWORD for each in parameters):
        return
    named = [each.name for each in parameters if each.kind != each.VAR_POSITIONAL]
    if named:
        message = f"{_label(callee, name)} has no argument {key!r}. It has {', '.join(named)}."
        raise ArgumentError(message)


def _deferred(
    callee: Function | Callable[..., Any] | None, key: int | str, name: str, given: tuple[Any, Any]
) -> Deferred | type[int] | None:
    """Return the lookup of an argument's type in a built-in function; a method's receiver is its first argument."""
    args, kwargs = given
    if callee is not None:
        target = getattr(callee, "target", None)
        return Deferred(target, args, kwargs, key) if target else None
    if name == "operator.getitem":
        return int
    if name.startswith(("operator.", "builtins.")):
        # The schemas have no reflected operators: the number in `random(1, 3) * x` is looked up as in `x * 2`.
        is_reflected = key == 0 and len(args) == 2  # noqa: PLR2004 - operators of two
        return Deferred(operator_of(name), args[::-1] if is_reflected else args, kwargs, 1 if is_reflected else key)
    if not name:
        return None
    return Deferred(name, (RECEIVER, *args), kwargs, key + 1 if isinstance(key, int) else key)


def _refuse_without_default(callee: Function | Callable[..., Any] | None, name: str, drawn: list[Any]) -> None:
    """Refuse ``nothing()`` for an argument without a default."""
    for item, parameter in zip(drawn, _parameters(callee), strict=False):
        if item is NOTHING and parameter.default is parameter.empty and parameter.kind != parameter.VAR_POSITIONAL:
            message = (
                f"nothing() was drawn for {parameter.name!r} of {_label(callee, name)}, which has no default. Give it "
                "a value."
            )
            raise ArgumentError(message)


def _label(callee: Function | Callable[..., Any] | None, name: str) -> str:
    return getattr(callee, "target", None) or name or "this call"


def _signed(callee: Any) -> Any:
    real = getattr(callee, "real", callee)
    return vars(real).get("__init__", real) if isinstance(real, type) else real


def _parameters(callee: Any) -> list[inspect.Parameter]:
    """Return the parameters that a call's arguments fill, as far as Python knows them."""
    return [parameter for parameter in python_parameters(_signed(callee)) or () if parameter.name != "self"]


def _hints(callee: Any) -> dict[str, object]:
    """Return the annotations of a callee and of its base classes, to which `torch.nn.LSTM` passes all arguments."""
    real = getattr(callee, "real", callee)
    kinds = reversed(real.__mro__) if isinstance(real, type) else ()
    found: dict[str, object] = {}
    for signed in [vars(kind)["__init__"] for kind in kinds if "__init__" in vars(kind)] or [real]:
        with suppress(TypeError, NameError, AttributeError):
            found |= get_type_hints(signed)
    return found


def _annotation(callee: Any, key: int | str) -> object:
    """Return the annotated type of a callee's parameter, by position or keyword; ``None`` if there is none."""
    if callee is None:
        return None
    hints = getattr(callee, "hints", None)
    if hints is None:
        hints = _hints(callee)
        if hasattr(callee, "hints"):
            callee.hints = hints
    if isinstance(key, int):
        parameters = _parameters(callee)
        key = parameters[key].name if key < len(parameters) else ""
    return hints.get(key)


class RecordedPacked(PackedSequence):
    """A packed sequence of the reference, as the body sees it.

    Attributes:
        real: The reference's packed sequence; ``None`` if a method of torch derived this one from another.
        ref: The step that returned it.
    """

    real: PackedSequence | None = None
    ref: Ref | None = None


def packed(real: PackedSequence, ref: Ref, items: Iterable[Any]) -> RecordedPacked:
    """Return the packed sequence for the body, without torch's constructor, because that reads the recorded fields."""
    found: RecordedPacked = tuple.__new__(RecordedPacked, items)
    found.real, found.ref = real, ref
    return found


def _packed_argument(
    recorder: Recorder, value: PackedSequence, real: list[Any], recorded: list[Any]
) -> tuple[Any, Any]:
    """Return a packed sequence as ``(value for the reference, value in the step)``.

    Args:
        recorder: The recorder of the attempt.
        value: The packed sequence that the body passes.
        real: Its fields on the reference.
        recorded: Its fields in a step.
    """
    if isinstance(value, RecordedPacked) and value.ref is not None:
        return value.real, value.ref
    step = Step(CALL_FUNCTION, PACKED, tuple(recorded), (), _PACKED_NAME, modes_in_force())
    made = recorder.run(step, PackedSequence, real, {})
    return made.real, made.ref


class Deferred:
    """The type of an argument, looked up only if a generator needs it, because most generators know their own type.

    Args:
        target: The function's dotted path, or the method's name.
        args: Positional arguments of the call; for a method, the receiver comes first.
        kwargs: Keyword arguments of the call.
        key: The argument: a position in ``args``, or a name.
    """

    __slots__ = ("args", "key", "kwargs", "target")

    def __init__(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], key: int | str) -> None:
        self.target, self.args, self.kwargs, self.key = target, args, kwargs, key

    def resolve(self) -> object:
        """Return the type on which all matching overloads agree; ``None`` if they do not, or none matches."""
        found = self.candidates()
        return found[0] if len(found) == 1 else None

    def candidates(self) -> list[object]:
        """Return the types of the argument in all matching overloads, without repeats."""
        found: list[object] = []
        for overload in overloads(self.target):
            wanted = _wanted(overload, self.args, self.kwargs, self.key)
            if wanted is not None and wanted not in found:
                found.append(wanted)
        return found


def _wanted(
    overload: tuple[Parameter, ...], args: Sequence[Any], kwargs: Mapping[str, Any], key: int | str
) -> object | None:
    """Return the type of ``key`` in an overload; ``None`` if the overload does not match or takes no number there."""
    bound = bound_to(overload, args, kwargs)
    if bound is None:
        return None
    found = None
    for parameter, place, value in bound:
        if place == key:
            found = _drawn_as(parameter)
        elif not _accepts(parameter, value):
            return None
    return found


def _drawn_as(parameter: Parameter) -> object | None:
    if parameter.kind.startswith("List[") and parameter.length is not None:
        return _NUMBERS.get(parameter.kind[len("List[") : -1])
    return _NUMBERS.get(parameter.kind)


def _accepts(parameter: Parameter, value: Any) -> bool:
    if isinstance(value, Generator) or value is NOTHING:
        return True  # its type is still unknown, and is looked up separately
    if value is None:
        return parameter.is_optional
    kind = parameter.kind
    if kind.startswith("List["):
        return _accepts_list(parameter, value)
    if value is RECEIVER:
        return kind == "Tensor"
    if isinstance(value, bool) and kind in {"int", "float"}:
        return False
    return isinstance(value, _ALLOWED.get(kind, (object,)))


_ALLOWED: Final[dict[str, tuple[type, ...]]] = {
    "Tensor": (RecordedTensor, torch.Tensor),
    "int": (int,),
    "float": (int, float),
    "complex": (int, float, complex),
    "bool": (bool,),
    "number": (bool, int, float, complex),
    "str": (str,),
    "ScalarType": (torch.dtype,),
    "Device": (torch.device, Device, str),
    "Layout": (torch.layout,),
    "MemoryFormat": (torch.memory_format,),
    "Dimname": (str,),
}


def _accepts_list(parameter: Parameter, value: Any) -> bool:
    item = parameter._replace(kind=parameter.kind[len("List[") : -1], is_optional=False)
    if item.kind.startswith("Optional["):
        item = item._replace(kind=item.kind[len("Optional[") : -1], is_optional=True)
    if isinstance(value, tuple | list):
        return all(not isinstance(part, EllipsisType) and _accepts(item, part) for part in value)
    return parameter.length is not None and _accepts(item, value)
