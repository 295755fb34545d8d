"""The functions that reach a torch function mode: which are operators, and how a test spells them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.operators.identity import PYTHON_OPERATORS, public_name
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, GET_ATTR
from ci_autotest.program.roles import VIEW_ATTRIBUTES
from ci_autotest.program.targets import OPS, is_function, is_method

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

#: Calls that return a tensor and compute nothing: autograd's, those that bring in data, and uninitialised memory.
_NO_OPERATORS: Final = frozenset({
    "torch.tensor", "torch.as_tensor", "torch.asarray", "torch.from_numpy", "torch.frombuffer", "torch.load",
    "torch.empty", "torch.empty_like", "torch.empty_strided",
    *(
        f"torch.Tensor.{name}"
        for name in (
            "backward", "detach", "detach_", "requires_grad_", "retain_grad", "register_hook", "cpu", "cuda", "set_",
            "pin_memory", "share_memory_", "new", "new_empty", "new_tensor", "as_subclass", "__deepcopy__", "numpy",
            "register_post_accumulate_grad_hook", "__reduce_ex__", "untyped_storage", "data_ptr",
        )
    ),
})  # fmt: skip
#: Namespaces of ``torch.ops`` that torch itself has.
_TORCHS: Final = frozenset({"aten", "prims"})
#: Calls that write every element of their first tensor and read none, so that its elements may be any.
_OVERWRITING: Final = frozenset({
    "fill_", "zero_", "copy_", "uniform_", "normal_", "random_", "exponential_", "bernoulli_", "geometric_",
    "log_normal_", "cauchy_",
})  # fmt: skip


@dataclass(slots=True)
class Callee:
    """A function that was called.

    Attributes:
        name: As messages spell it.
        op: Opcode of its steps.
        target: Target of its steps.
        is_reflected: Whether its arguments are in reverse order, as in ``__rsub__``.
        reason: Why its calls cannot become tests; empty if they can.
        is_operator: Whether a call has returned a tensor.
        kept: Number of its different calls that are kept.
    """

    name: str
    op: Literal["call_function", "call_method", "get_attr"] = CALL_FUNCTION
    target: str = ""
    is_reflected: bool = False
    reason: str = ""
    is_operator: bool = False
    kept: int = 0


def callee_of(func: Callable[..., Any]) -> Callee | None:
    """Return what is known of a function before its first call; ``None`` if it is no operator."""
    if func in {torch.autograd.grad, torch.autograd.backward}:  # torch lists no public name for them
        return None
    name = public_name(func)
    if name is None:
        own = f"{getattr(func, '__module__', None) or 'torch'}.{getattr(func, '__name__', type(func).__name__)}"
        return Callee(own, reason="it has no public name")
    name = name.replace("torch.functional.", "torch.")
    if name in _NO_OPERATORS or name.endswith(".__set__"):
        return None
    if name.endswith(".__get__"):
        attribute = name.split(".")[-2]
        return Callee(name.removesuffix(".__get__"), GET_ATTR, attribute) if attribute in VIEW_ATTRIBUTES else None
    if name.startswith("torch.Tensor."):
        return _method(name, name.removeprefix("torch.Tensor."))
    if name.startswith(OPS):
        is_known = name.removeprefix(OPS).partition(".")[0] in _TORCHS
        return Callee(name, target=name, reason="" if is_known else "its library has to be loaded by the test file")
    return Callee(name, target=name, reason="" if is_function(name) else "it is private")


def _method(name: str, method: str) -> Callee:
    if not method.startswith("__"):
        return Callee(name, CALL_METHOD, method, reason="" if is_method(method) else "it is private")
    bare = method.strip("_")
    is_reflected = bare.startswith("r") and _python_operator(bare[1:]) is not None and bare != "rshift"
    found = _python_operator(bare[1:] if is_reflected else bare)
    if found is None:
        return Callee(name, reason="it is private")
    return Callee(name, target=f"operator.{found}", is_reflected=is_reflected, is_operator=found == "setitem")


def _python_operator(bare: str) -> str | None:
    bare = "truediv" if bare == "div" else bare
    return next((found for found in (bare, f"{bare}_") if found in PYTHON_OPERATORS), None)


def is_overwriting(callee: Callee) -> bool:
    """Whether a call writes every element of its first tensor and reads none of them."""
    return callee.target in _OVERWRITING or callee.target.startswith("torch.nn.init.")


def defaults_of(func: Callable[..., Any]) -> dict[str, object]:
    """Return the keywords that may be left out of a call, each with its default.

    Functions of torch that are written in Python pass all of their arguments on to a mode, given or not.
    """
    if not isinstance(func, FunctionType):
        return {"generator": None, "memory_format": torch.preserve_format, "dtype": None, "device": None, "out": None}
    try:
        parameters = inspect.signature(func).parameters.values()
    except ValueError:  # `x ** 2` is a Python function around a built-in method
        return {}
    return {"_stacklevel": 3, **{one.name: one.default for one in parameters if one.default is not one.empty}}


def given_keywords(kwargs: dict[str, Any], defaults: dict[str, object]) -> dict[str, Any]:
    """Return the keywords that differ from their defaults. A float stays, because later calls may have another."""
    return {
        name: value
        for name, value in kwargs.items()
        if isinstance(value, float | torch.Tensor) or name not in defaults or defaults[name] != value
    }


def keyword_of(callee: Callee, value: object) -> str:
    """Return the keyword of an argument without one: ``device`` for the text in ``x.to("cuda")``."""
    return "device" if callee.target == "to" and isinstance(value, str) else ""


def sparse_layout(result: object) -> str:
    """Return the layout of a result that is not strided, for which tests are not written; else an empty text."""
    items = result if isinstance(result, tuple | list) else (result,)
    layouts = (item.layout for item in items if isinstance(item, torch.Tensor))
    return next((str(layout) for layout in layouts if layout is not torch.strided), "")
