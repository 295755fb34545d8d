"""The signatures of torch's functions, methods and modules, and how a call's arguments fit them.

A built-in function has its overloads in torch's operator schemas; one written in Python has Python's signature; a few
have neither and are listed here. The recorder needs the type that a number must have, the mapping an argument's name.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.program.ir import CALL_METHOD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NAMESPACES: Final = {
    "torch": "", "torch.nn.functional": "", "torch.Tensor": "", "torch._C._nn": "", "torch.linalg": "linalg_",
    "torch.fft": "fft_", "torch.special": "special_", "": "",
}  # fmt: skip
#: NumPy's spellings that torch's argument parser accepts for a schema's own names.
SPELLED: Final = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "x2": "other"}
#: The kind of a parameter whose type no signature gives, and of one that takes all remaining positional arguments.
ANYTHING: Final = "anything"
GATHERED: Final = "gathered"
_LAYER: Final = (
    "input_size", "hidden_size", "num_layers", "nonlinearity", "bias", "batch_first", "dropout", "bidirectional",
)  # fmt: skip
#: Signatures that neither Python nor a schema has; a starred name takes all remaining positional arguments.
_WRITTEN: Final[dict[str, tuple[str, ...]]] = {
    "torch.einsum": ("equation", "*operands"),
    "torch.nonzero": ("input", "as_tuple"),  # its schema has no as_tuple
    "torch.Tensor.nonzero": ("self", "as_tuple"),
    "torch.nn.functional.logsigmoid": ("input",),  # its schema is called log_sigmoid
    **dict.fromkeys(("torch.nn.LSTM", "torch.nn.GRU"), (*_LAYER[:3], *_LAYER[4:])),
    "torch.nn.RNN": _LAYER,
    "torch.Tensor.type": ("self", "dtype", "non_blocking"),
    "torch.Tensor.new_tensor": ("self", "data", "dtype", "device"),
    "torch.Tensor.numpy": ("self", "force"),
    "torch.Tensor.tolist": ("self",),
    "torch.Tensor.__getitem__": ("self", "index"),
    "torch.Tensor.__setitem__": ("self", "index", "value"),
    **{
        f"torch.Tensor.{name}": ("self", "memory_format")
        for name in ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cpu")
    },
}


class Parameter(NamedTuple):
    """One parameter of an overload.

    Attributes:
        name: As the schema spells it.
        kind: The schema's type without ``Optional``.
        length: Length of a list of fixed length; ``None`` for other types.
        is_optional: Whether ``None`` is allowed.
        has_default: Whether it may be omitted.
        by_keyword: Whether it is keyword-only.
        default: Its default value; one number may stand for a list of fixed length.
    """

    name: str
    kind: str
    length: int | None
    is_optional: bool
    has_default: bool
    by_keyword: bool
    default: object = None


@lru_cache(maxsize=1024)
def overloads(target: str) -> tuple[tuple[Parameter, ...], ...]:
    """Return the overloads of a built-in function or method that return a tensor; empty if it has no schema.

    Overloads with ``out=`` are left out because they take the same numbers as the others, and those that return no
    tensor because they are TorchScript's arithmetic on Python numbers.
    """
    return tuple(
        tuple(map(_of_schema, schema.arguments))
        for schema in schemas(target)
        if any("Tensor" in str(returned.type) for returned in schema.returns)
    )


@lru_cache(maxsize=1024)
def tensor_overloads(target: str) -> tuple[tuple[Parameter, ...], ...]:
    """Return the overloads that return a tensor or are called on one, for example ``x.size(0)``."""
    found = [tuple(map(_of_schema, schema.arguments)) for schema in schemas(target)]
    on_tensors = tuple(overload for overload in found if overload and overload[0].kind == "Tensor")
    return tuple(dict.fromkeys((*overloads(target), *on_tensors)))


@lru_cache(maxsize=2048)
def forms(target: str, op: str) -> tuple[tuple[Parameter, ...], ...]:
    """Return the forms that a call of a target may have; the receiver of a method is the parameter ``self``.

    Args:
        target: The function's dotted path, or the method's name.
        op: Opcode of the step.
    """
    path = f"torch.Tensor.{target}" if op == CALL_METHOD else target
    name = path.rpartition(".")[2]
    found = _written(path) or _python_form(path)
    if found is None:
        base = name.rstrip("_") if not name.startswith("__") else name
        # A built-in may have another name in its schema: `logsigmoid` is `log_sigmoid` there.
        own = getattr(resolved(path), "__name__", name)
        targets = dict.fromkeys((target, target.removesuffix(name) + base, target.removesuffix(name) + own))
        return next(filter(None, map(tensor_overloads, targets)), ())
    return (found,)


def resolved(path: str) -> Any:
    """Return the object at a dotted path of torch; ``None`` if there is none."""
    found: Any = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def python_parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...] | None:
    """Return the parameters of a function's Python signature; ``None`` if it has none, as most of torch's built-ins."""
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _python_form(path: str) -> tuple[Parameter, ...] | None:
    found = resolved(path)
    if isinstance(found, type):
        return _form(found) if issubclass(found, torch.nn.Module) else None
    if not isinstance(found, FunctionType):
        return None
    form = _form(found)
    if {parameter.name for parameter in form} == {"args", "kwargs"}:
        # As in `max_pool2d`, a flag chooses between two functions; their shared signature has a private name.
        name = path.rpartition(".")[2]
        other = getattr(torch.nn.functional, f"_{name}", None) or getattr(torch.Tensor, name, None)
        return _form(other) if isinstance(other, FunctionType) else None
    return form


def _form(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    return tuple(map(_of_python, python_parameters(function) or ()))


def _of_python(parameter: inspect.Parameter) -> Parameter:
    is_gathered = parameter.kind is parameter.VAR_POSITIONAL
    has_default = parameter.default is not parameter.empty or is_gathered or parameter.kind is parameter.VAR_KEYWORD
    default = parameter.default if parameter.default is not parameter.empty else None
    by_keyword = parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD}
    kind = GATHERED if is_gathered else ANYTHING
    return Parameter(
        parameter.name,
        kind,
        length=None,
        is_optional=True,
        has_default=has_default,
        by_keyword=by_keyword,
        default=default,
    )


def _written(path: str) -> tuple[Parameter, ...] | None:
    names = _WRITTEN.get(path)
    if names is None:
        return None
    return tuple(
        Parameter(
            name.removeprefix("*"),
            GATHERED if name.startswith("*") else ANYTHING,
            length=None,
            is_optional=True,
            has_default=name not in {"self", "input", "equation", "input_size", "hidden_size"},
            by_keyword=False,
        )
        for name in names
    )


def schemas(target: str) -> list[Any]:
    """Return torch's operator schemas of a function or method, without those that write to ``out=``."""
    namespace, _, name = target.rpartition(".")
    prefix = _NAMESPACES.get(namespace)
    if prefix is None:
        return []
    get: Callable[[str], list[Any]] = torch._C._jit_get_schemas_for_operator
    return [s for s in get(f"aten::{prefix}{name}") if not any(argument.is_out for argument in s.arguments)]


@lru_cache(maxsize=1024)
def takes_out(target: str) -> bool:
    """Whether some overload of a function writes to ``out=``; whether Python can call that one is not known."""
    namespace, _, name = target.rpartition(".")
    prefix = _NAMESPACES.get(namespace)
    if prefix is not None:
        found = torch._C._jit_get_schemas_for_operator(f"aten::{prefix}{name}")
        if any(argument.is_out for schema in found for argument in schema.arguments):
            return True
    return any(parameter.name == "out" for parameter in python_parameters(resolved(target)) or ())


def _of_schema(argument: Any) -> Parameter:
    kind = str(argument.real_type)
    is_optional = kind.startswith("Optional[")
    default = argument.default_value if argument.has_default_value() else None
    return Parameter(
        argument.name,
        kind[len("Optional[") : -1] if is_optional else kind,
        argument.N,
        is_optional,
        argument.has_default_value(),
        argument.kwarg_only,
        tuple(default) if isinstance(default, list) else default,
    )


def bound_to(
    overload: tuple[Parameter, ...], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[Parameter, int | str, Any]] | None:
    """Return ``(parameter, place, value)`` for each argument; ``None`` if the overload does not fit the call."""
    positional = [parameter for parameter in overload if not parameter.by_keyword]
    in_a_row = spread(positional, args)
    if in_a_row is not None:
        return in_a_row if not kwargs else None
    if len(args) > len(positional):
        return None
    bound: list[tuple[Parameter, int | str, Any]] = [(positional[i], i, value) for i, value in enumerate(args)]
    left = {parameter.name: parameter for parameter in overload[len(args) :]}
    for name, value in kwargs.items():
        parameter = left.pop(name, None) or left.pop(SPELLED.get(name, ""), None)
        if parameter is None:
            return None
        bound.append((parameter, name, value))
    return bound if all(parameter.has_default for parameter in left.values()) else None


def spread(positional: Sequence[Parameter], args: Sequence[Any]) -> list[tuple[Parameter, int | str, Any]] | None:
    """Return the binding of a call such as ``x.view(2, 3)``, which spreads the overload's last list over arguments."""
    if not positional or positional[-1].kind != "List[int]" or positional[-1].length is not None:
        return None
    first = len(positional) - 1
    rest = args[first:]
    if not rest or any(isinstance(value, tuple | list) for value in rest):
        return None
    one = positional[-1]._replace(kind="int")
    head: list[tuple[Parameter, int | str, Any]] = [(positional[i], i, value) for i, value in enumerate(args[:first])]
    return head + [(one, first + i, value) for i, value in enumerate(rest)]
