"""Calls that reach the user's kernels however they are spelled, and operators of a library that are checked."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class Replace(torch.overrides.TorchFunctionMode):
    """Hands calls to the user's kernels, also from inside a module.

    Args:
        replaced: The kernel of each function of torch.
    """

    def __init__(self, replaced: dict[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.replaced = replaced
        # In-place spellings: the receiver is given the result.
        self.written = {
            getattr(torch.Tensor, name): kernel
            for function, kernel in replaced.items()
            for name in (f"{function.__name__}_", f"__i{function.__name__}__")
            if hasattr(torch.Tensor, name)
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.written:
            return args[0].copy_(self.written[func](*args, **kwargs))
        function = self.replaced.get(func, func)
        if function is not func and kwargs and inspect.isfunction(function):
            # torch's wrappers add keywords of their own, `_stacklevel=3` and `dtype=None`
            takes = inspect.signature(function).parameters
            kwargs = {k: v for k, v in kwargs.items() if k in takes or not (k[0] == "_" or v is None)}
        return function(*args, **kwargs)


def checked(function: Any, check: str) -> Callable[..., Any]:
    """Return a function that `torch.library.opcheck` checks at each call if it is an operator of a library."""
    # Modes and modules may pass calls to other functions of the candidate too.
    kinds = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._library.custom_ops.CustomOpDef)

    def call(*args: Any, **kwargs: Any) -> Any:
        torch.library.opcheck(function, args, kwargs, test_utils=check)
        return function(*args, **kwargs)

    return call if isinstance(function, kinds) else function
