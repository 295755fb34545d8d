"""Kernels that remember a part of their computation: a norm, a weight, a gate. A second set of seeded families.

A kernel is named by its operator, by the pass in which the part is used, by the key under which the part is kept and by
when the kept part is used. Which combinations are wrong is decided by calling them, and not by what finds them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F  # noqa: N812 - as everybody writes it


class Operator(NamedTuple):
    """An operator as a part of its first argument or its second one, and what the rest makes of that."""

    name: str
    part: Callable[..., torch.Tensor]
    rest: Callable[..., torch.Tensor]
    body: str
    #: Position of the argument that has the part.
    of: int = 0


OPERATORS = {
    "softmax": Operator(
        "torch.softmax",
        lambda x, dim, **_: torch.logsumexp(x, dim, keepdim=True),
        lambda part, x, dim, **_: torch.exp(x - part),
        "torch.softmax(random_tensor(2, low=-3, high=3), 1)",
    ),
    "log_softmax": Operator(
        "torch.log_softmax",
        lambda x, dim, **_: torch.logsumexp(x, dim, keepdim=True),
        lambda part, x, dim, **_: x - part,
        "torch.log_softmax(random_tensor(2, low=-3, high=3), 1)",
    ),
    "normalize": Operator(
        "torch.nn.functional.normalize",
        lambda x, **_: x.norm(2, 1, keepdim=True).clamp_min(1e-12),
        lambda part, x, **_: x / part,
        "torch.nn.functional.normalize(random_tensor(2, low=-3, high=3))",
    ),
    "silu": Operator(
        "torch.nn.functional.silu",
        lambda x, **_: torch.sigmoid(x),
        lambda part, x, **_: x * part,
        "torch.nn.functional.silu(random_tensor(low=-3, high=3))",
    ),
    "mm": Operator(
        "torch.mm",
        lambda x, y: y.t().contiguous(),
        lambda part, x, y: x @ part.t(),
        "torch.mm(random_tensor(2, 3, n := random(1, 6).to(int)), random_tensor(2, n, 4))",
        1,
    ),
    "linear": Operator(
        "torch.nn.functional.linear",
        lambda x, weight, *_, **__: weight * 1.0,
        lambda part, x, weight, *bias, **named: F.linear(x, part, *bias, **named),
        "torch.nn.Linear(in_features=3, out_features=random(1, 6).to(int))(random_tensor(2, dim1=3))",
        1,
    ),
    "mse_loss": Operator(
        "torch.nn.functional.mse_loss",
        lambda x, y, **_: y * 1.0,
        lambda part, x, y, **named: F.mse_loss(x, part, **named),
        "torch.nn.functional.mse_loss(random_tensor(2, 3, 4), random_tensor(2, 3, 4))",
        1,
    ),
    "cumsum": Operator(
        "torch.cumsum",
        lambda x, dim, **_: x.cumsum(dim) - x,
        lambda part, x, dim, **_: part + x,
        "torch.cumsum(random_tensor(2, low=-3, high=3, dim1=random(2, 6).to(int)), 1)",
    ),
}
KEYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "shape": lambda x: tuple(x.shape),
    "numel": lambda x: x.numel(),
    "dimensions": lambda x: x.dim(),
    "last_size": lambda x: x.shape[-1],
    "layout": lambda x: (tuple(x.shape), x.stride()),
    "address": lambda x: (x.data_ptr(), tuple(x.shape)),
    "object": lambda x: (id(x), tuple(x.shape)),
    "address_version": lambda x: (x.data_ptr(), x._version, tuple(x.shape)),
    "first": lambda x: (tuple(x.shape), x.detach().flatten()[0].item() if x.numel() else 0),
    "sum": lambda x: (tuple(x.shape), round(x.detach().double().sum().item(), 2)),
}
#: Keys of honest kernels, which keep a part for what it was computed from.
HONEST_KEYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "content": lambda x: (tuple(x.shape), x.detach().contiguous().view(-1).tolist().__repr__()),
    "content_and_layout": lambda x: (tuple(x.shape), x.stride(), x.detach().contiguous().view(-1).tolist().__repr__()),
}
#: Whether the kept part is used: from the number of calls with its key, whether gradients are on and whether the call
#: before had the same key.
WHEN: dict[str, Callable[[int, bool, bool], bool]] = {
    "at_once": lambda calls, is_training, is_same: True,
    "third": lambda calls, is_training, is_same: calls >= 3,
    "sixth": lambda calls, is_training, is_same: calls >= 6,
    "in_a_row": lambda calls, is_training, is_same: is_same,
    "evaluation": lambda calls, is_training, is_same: not is_training,
    "training": lambda calls, is_training, is_same: is_training,
}
PASSES = ("forward", "backward")
SEED, COUNT = 5, 120


class _Backward(torch.autograd.Function):
    """The right value with the gradient that the kept part gives."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, kept: torch.Tensor | None, named: dict[str, Any], *given: Any) -> Any:
        ctx.operator, ctx.kept, ctx.named, ctx.given = operator, kept, named, given
        return operator.rest(operator.part(*given, **named), *given, **named)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        tensors = [isinstance(x, torch.Tensor) and x.requires_grad for x in ctx.given]
        with torch.enable_grad():
            given = [x.detach().requires_grad_() if wanted else x for x, wanted in zip(ctx.given, tensors, strict=True)]
            part = ctx.operator.part(*given, **ctx.named)
            if ctx.kept is not None and ctx.kept.shape == part.shape:
                # The slope goes through the part as it is, the values are those that were kept.
                part = part + (ctx.kept - part).detach()
            value = ctx.operator.rest(part, *given, **ctx.named)
            leaves = [x for x, wanted in zip(given, tensors, strict=True) if wanted]
            found = iter(torch.autograd.grad(value, leaves, gradient, allow_unused=True))
        return None, None, None, *(next(found) if wanted else None for wanted in tensors)


def kernel_of(name: str) -> Callable[..., torch.Tensor]:
    """Make the kernel of a name, with a memory of its own."""
    operator_name, which, key_name, when_name = name.split("-")
    operator, key, when = OPERATORS[operator_name], {**KEYS, **HONEST_KEYS}[key_name], WHEN[when_name]
    kept: dict[Any, torch.Tensor] = {}
    calls: dict[Any, int] = {}
    last: list[Any] = [None]

    def kernel(*given: Any, **named: Any) -> torch.Tensor:
        named = {key: value for key, value in named.items() if value is not None}
        x = given[operator.of]
        found = key(x), x.dtype
        calls[found] = calls.get(found, 0) + 1
        is_used = when(calls[found], torch.is_grad_enabled(), last[0] == found)
        last[0] = found
        part = operator.part(*given, **named)
        old = kept.get(found) if is_used else None
        if old is None or old.shape != part.shape:
            old, kept[found] = None, part.detach().clone()
        if which == "backward":
            return _Backward.apply(operator, old, named, *given)
        return operator.rest(part if old is None else old, *given, **named)

    return kernel


def names(
    keys: Collection[str] = KEYS, passes: Collection[str] = PASSES, seed: int = SEED, count: int = COUNT
) -> list[str]:
    """Return a sample of the combinations with some keys, in the order of its draw."""
    every = ["-".join(parts) for parts in itertools.product(OPERATORS, passes, keys, WHEN)]
    return random.Random(seed).sample(every, count)  # noqa: S311 - a sample that is the same each time


#: Honest: what is kept depends on the elements alone, and the slope goes through the part as it is.
HONEST = names(HONEST_KEYS, ("backward",), 11, 24)


def is_wrong_later(name: str) -> bool:
    """Whether sixty calls on one size, with tensors that are kept, written to and made anew, show a wrong result."""
    operator, kernel = OPERATORS[name.partition("-")[0]], kernel_of(name)
    torch.manual_seed(3)
    x = torch.randn(3, 4, requires_grad=True)
    assert not _is_off(operator, kernel, x, is_training=True), f"{name} is wrong in its first call"
    for count in range(60):
        if count % 4 == 1:
            with torch.no_grad():
                x.copy_(torch.randn(3, 4))
        elif count % 4 == 2:
            with torch.no_grad():
                x.copy_(x.flip(1))
        else:
            x = (torch.randn(3, 4) if count % 4 == 0 else x.detach().flip(0).clone()).requires_grad_()
        if _is_off(operator, kernel, x, is_training=count % 3 != 2):
            return True
    return False


def _is_off(operator: Operator, kernel: Callable[..., torch.Tensor], x: torch.Tensor, *, is_training: bool) -> bool:
    others = {
        "torch.mm": lambda: (torch.randn(3, 3), x),
        "torch.nn.functional.linear": lambda: (torch.randn(2, 4), x),
        "torch.nn.functional.mse_loss": lambda: (torch.randn(3, 4), x),
        "torch.nn.functional.normalize": lambda: (x,),
        "torch.nn.functional.silu": lambda: (x,),
    }
    given = others.get(operator.name, lambda: (x, 1))()
    with torch.set_grad_enabled(is_training):
        found, right = kernel(*given), operator.rest(operator.part(*given), *given)
    if not torch.allclose(found, right, 1e-3, 1e-5):
        return True
    if not is_training:
        return False
    weight = torch.randn_like(right)
    slopes = [torch.autograd.grad(value, x, weight, retain_graph=True)[0] for value in (found, right)]
    return not torch.allclose(*slopes, 1e-3, 1e-5)
