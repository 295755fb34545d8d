"""Operator checks: what an operator of a library declares to torch, held against what it does on a case's arguments.

``torch.library.opcheck`` decides. A fake kernel is asked only of operators that register one: without one, an operator
does not claim to work in a graph. Which operators do is private to torch, and read here alone.
"""

from __future__ import annotations

import warnings
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._library import simple_registry
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a failure of each check says of the operator.
_SENTENCES: Final = {
    "test_schema": "has a schema that does not say what it does",
    "test_autograd_registration": "has no gradient that is registered with autograd",
    "test_faketensor": "has a fake kernel that gives something else",
    "test_aot_dispatch_dynamic": "fails in a graph with its gradient",
}
#: Checks that need a fake kernel.
_OF_GRAPHS: Final = frozenset({"test_faketensor", "test_aot_dispatch_dynamic"})
#: Keys of kernels that also compute on tensors without data.
_WITHOUT_DATA: Final = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")


class OperatorCheckError(RuntimeError):
    """A check of an operator has failed."""


def library_operator(function: Any) -> Any:
    """Return the operator of a user's library that a function is; ``None`` for any other function."""
    if isinstance(function, CustomOpDef):
        function = function._opoverload
    if isinstance(function, OpOverloadPacket):
        overloads: list[str] = function.overloads()  # type: ignore[no-untyped-call]
        function = getattr(function, overloads[0]) if len(overloads) == 1 else None
    is_of_user = isinstance(function, OpOverload) and function.namespace not in {"aten", "prim", "prims"}
    return function if is_of_user else None


def checked(function: Callable[..., Any], check: str) -> Callable[..., Any]:
    """Return a function that is checked at each call if it is an operator of a library.

    Args:
        function: Any.
        check: One of the checks of ``torch.library.opcheck``.
    """
    operator = library_operator(function)
    if operator is None or (check in _OF_GRAPHS and not _has_fake_kernel(operator)):
        return function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():  # Of autograd, about what the check then says.
            warnings.simplefilter("ignore")
            # torch's annotation leaves out that a failure is the error itself.
            found: Any = torch.library.opcheck(operator, args, kwargs, test_utils=check, raise_exception=False)[check]
        if isinstance(found, Exception):
            text = next(iter(str(found).strip().splitlines()), type(found).__name__)
            message = f"{_SENTENCES[check]}: {text[:300]}"
            raise OperatorCheckError(message)
        return function(*args, **kwargs)

    return call


def _has_fake_kernel(operator: Any) -> bool:
    name = operator._schema.name
    if name in OPDEFS:
        return OPDEFS[name]._abstract_fn is not None
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    has_own = any(has_kernel(operator.name(), key) for key in _WITHOUT_DATA)
    return has_own or simple_registry.singleton.find(name).fake_impl.kernel is not None
