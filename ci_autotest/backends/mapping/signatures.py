"""Argument names of torch's functions and methods: from Python's signatures, else from torch's operator schemas.

The names are those of torch's documentation; a schema's ``self``, and the receiver of a method, is ``input``.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.operators.identity import ALIASES, spellings
from ci_autotest.backends.operators.overloads import Parameter, tensor_overloads
from ci_autotest.program.ir import CALL_METHOD

if TYPE_CHECKING:
    from collections.abc import Callable

#: The kind of a parameter that a signature gives no type of, and of one that takes all positional arguments left.
ANYTHING: Final = "anything"
GATHERED: Final = "gathered"
#: What a method's receiver and a schema's ``self`` are called.
INPUT: Final = "input"
#: Arguments of a spelling that its operator's documentation calls otherwise, by the function's or method's name.
_RESPELLED: Final[dict[str, dict[str, str]]] = {
    "split": {"tensor": "input", "split_size": "split_size_or_sections"},
    "tensor": {"t": "data"},
    "swapaxes": {"axis0": "dim0", "axis1": "dim1"},
}
#: Arguments that choose how torch computes, not what.
WITHOUT_MEANING: Final = frozenset({
    "_stacklevel", "cudnn_enabled", "cudnn_enable", "non_blocking", "pin_memory", "layout", "generator", "sparse_grad",
})  # fmt: skip
#: Arguments that torch's bindings of Python take and no schema has.
OF_PYTHON: Final = ("requires_grad", "out")
_LAYER: Final = (
    "input_size", "hidden_size", "num_layers", "nonlinearity", "bias", "batch_first", "dropout", "bidirectional",
)  # fmt: skip
#: Forms that neither a signature nor a schema says; one with a star takes all positional arguments left.
_WRITTEN: Final[dict[str, tuple[str, ...]]] = {
    "torch.einsum": ("equation", "*operands"),
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


@lru_cache(maxsize=2048)
def forms(target: str, op: str) -> tuple[tuple[Parameter, ...], ...]:
    """Return the forms that a call of a target may have; for a method the receiver is the parameter ``self``.

    Args:
        target: The function's dotted path, or the method's name.
        op: Opcode of the step.
    """
    path = f"torch.Tensor.{target}" if op == CALL_METHOD else target
    name = path.rpartition(".")[2]
    found = _written(path) or _python_form(path)
    if found is None:
        base = name.rstrip("_") if not name.startswith("__") else name
        own = getattr(resolved(path), "__name__", name)  # `logsigmoid` is built in as `log_sigmoid`
        targets = dict.fromkeys((target, target.removesuffix(name) + base, target.removesuffix(name) + own))
        return next(filter(None, map(tensor_overloads, targets)), ())
    return (found,)


def respelled(target: str, name: str) -> str:
    """Return what the documentation of a target's operator calls an argument."""
    if name == "self":
        return INPUT
    return _RESPELLED.get(target.rpartition(".")[2], {}).get(name, name)


@lru_cache(maxsize=2048)
def arguments(operator: str) -> frozenset[str]:
    """Return the names of the arguments that an operator has in any of its spellings."""
    bare = operator.rpartition(".")[2]
    names = {bare, f"{bare}_", *(alias for alias, of in ALIASES.items() if of == bare)}
    targets = {(operator, ""), *((path, "") for name in names for path in spellings(name))}
    found = {
        respelled(target, parameter.name)
        for target, op in targets
        if resolved(target) is not None
        for form in forms(target.removeprefix("torch.Tensor."), CALL_METHOD if "torch.Tensor." in target else op)
        for parameter in form
    }
    if operator.startswith("torch.Tensor."):
        found.add(INPUT)
    return frozenset({*found, *OF_PYTHON}) if found else frozenset()


def resolved(path: str) -> Any:
    """Return what torch has under a dotted path, ``None`` where it has nothing."""
    found: Any = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def _python_form(path: str) -> tuple[Parameter, ...] | None:
    """Return the form of a function or method written in Python, or of a module class's constructor."""
    found = resolved(path)
    if isinstance(found, type):
        return _form(found) if issubclass(found, torch.nn.Module) else None
    if not isinstance(found, FunctionType):
        return None
    form = _form(found)
    if {parameter.name for parameter in form} == {"args", "kwargs"}:
        # Two functions behind one name, chosen by a flag: torch keeps their shared signature under a private name.
        name = path.rpartition(".")[2]
        other = getattr(torch.nn.functional, f"_{name}", None) or getattr(torch.Tensor, name, None)
        return _form(other) if isinstance(other, FunctionType) else None
    return form


def _form(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    return tuple(map(_parameter, inspect.signature(function).parameters.values()))


def _parameter(parameter: inspect.Parameter) -> Parameter:
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
            has_default=name not in {"self", "equation", "input_size", "hidden_size"},
            by_keyword=False,
        )
        for name in names
    )
