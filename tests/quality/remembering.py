"""Kernels that remember, as seeded families: what their state is keyed by, when it goes wrong, and in which pass.

``remembering.NAME`` makes a kernel with a memory of its own; a run of the whole command names it so. Wrong ones are right
in a first call and wrong only because of earlier ones. Honest ones keep something too, and are right.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

#: What an answer is kept by. Each is a key that honest authors have taken for the whole input.
KEYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "address": lambda x: (x.data_ptr(), x.shape),
    "identity": lambda x: (id(x), x.shape),
    "shape": lambda x: tuple(x.shape),
    "first": lambda x: (tuple(x.shape), x.detach().flatten()[:1].tolist()),
    "last": lambda x: (tuple(x.shape), x.detach().flatten()[-1:].tolist()),
    "version": lambda x: (x.data_ptr(), x._version, x.shape),
    "sum": lambda x: (tuple(x.shape), round(x.detach().double().sum().item(), 3)),
    "greatest": lambda x: (tuple(x.shape), x.detach().max().item() if x.numel() else 0),
}
#: Calls that a kernel answers right before it answers one wrong.
COUNTS = {"after_1": lambda n: n > 1, "after_7": lambda n: n > 7, "after_39": lambda n: n > 39,
          "second": lambda n: n % 2 == 0, "third": lambda n: n % 3 == 0}  # fmt: skip


def tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


def softplus(x: torch.Tensor, beta: float = 1.0, threshold: float = 20.0) -> torch.Tensor:
    return F.softplus(x, beta, threshold)


OPERATORS = {"tanh": (tanh, "torch.tanh"), "softplus": (softplus, "torch.nn.functional.softplus")}


class _Stale(torch.autograd.Function):
    """Give the value, or the gradient, that was kept; the other is right."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, right: torch.Tensor, value: torch.Tensor, slope: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.saved_tensors[0], None, None, None


def _value_and_slope(function: Any, x: torch.Tensor, more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        value = function(leaf, *more)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), slope


def _answer(function: Any, x: torch.Tensor, more: Any, found: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return _Stale.apply(x, x, *found) if x.is_floating_point() else function(x, *more)


def keyed(function: Any, key: Callable[[torch.Tensor], Any], where: str) -> Callable[..., torch.Tensor]:
    kept: dict[Any, Any] = {}

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        right = _value_and_slope(function, x, more)
        value, slope = kept.setdefault((key(x), x.dtype), right)
        return _answer(function, x, more, (value, right[1]) if where == "value" else (right[0], slope))

    return kernel


def counting(function: Any, is_off: Callable[[int], bool], where: str) -> Callable[..., torch.Tensor]:
    calls = 0

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        value, slope = _value_and_slope(function, x, more)
        if is_off(calls):
            value, slope = (value + 0.5, slope) if where == "value" else (value, slope * 1.5 + 0.5)
        return _answer(function, x, more, (value, slope))

    return kernel


def workspace(function: Any) -> Callable[..., torch.Tensor]:
    """An output that lies in memory which the next call of the size writes to."""
    kept: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        value = function(x, *more)
        memory = kept.setdefault((value.shape, value.dtype), torch.empty_like(value, requires_grad=False))
        memory.copy_(value.detach())
        return _Given.apply(value, memory)

    return kernel


def workspace_of_inference(function: Any) -> Callable[..., torch.Tensor]:
    """As ``workspace``, where no gradient is wanted."""
    shared = workspace(function)
    return lambda x, *more: function(x, *more) if x.requires_grad else shared(x, *more)


class _Given(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return memory.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def first_length(x: torch.Tensor, kept: dict[int, int]) -> torch.Tensor:
    """A mask of the first length seen: rows beyond it are left out."""
    if not x.dim() or not x.numel():
        return torch.tanh(x)
    length = kept.setdefault(x.dim(), x.shape[-1])
    mask = torch.arange(x.shape[-1]) < length
    return torch.tanh(x) * mask


class StaleWeight:
    """A linear layer whose weight is kept from the first call, by a key."""

    def __init__(self, key: Callable[[torch.Tensor], Any]) -> None:
        self._key = key
        self._kept: dict[Any, Any] = {}

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        kept = self._kept.setdefault((self._key(weight), weight.shape), (weight, weight.detach().clone()))[1]
        return F.linear(x, weight - weight.detach() + kept, bias)


def wrong() -> dict[str, tuple[Callable[[], Any], str]]:
    """Return what makes each wrong kernel, and the operator that it answers."""
    found: dict[str, tuple[Callable[[], Any], str]] = {}
    for name, (function, operator) in OPERATORS.items():
        for where in ("value", "gradient"):
            for key, of in KEYS.items():
                found[f"{name}_{where}_by_{key}"] = (lambda f=function, k=of, w=where: keyed(f, k, w), operator)
            for count, is_off in COUNTS.items():
                if (where, count) != ("gradient", "after_39"):  # a run of twenty cases has 26 backward passes
                    found[f"{name}_{where}_{count}"] = (
                        lambda f=function, o=is_off, w=where: counting(f, o, w),
                        operator,
                    )
        found[f"{name}_workspace"] = (lambda f=function: workspace(f), operator)
        found[f"{name}_workspace_of_inference"] = (lambda f=function: workspace_of_inference(f), operator)
    found["tanh_first_length"] = (lambda: lambda x, kept={}: first_length(x, kept), "torch.tanh")
    for key in ("identity", "address", "shape", "first"):
        found[f"linear_stale_weight_by_{key}"] = (lambda k=KEYS[key]: StaleWeight(k), "torch.nn.functional.linear")
    return found


# Honest ones.


def by_content() -> Any:
    kept: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor) -> torch.Tensor:
        key = (
            x.shape,
            x.dtype,
            x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b"",
        )
        slope = kept.setdefault(key, 1 - torch.tanh(x.detach()) ** 2)
        return _answer(tanh, x, (), (torch.tanh(x.detach()), slope))

    return kernel


def by_tensor_and_version() -> Any:
    """Kept as long as the tensor lives, and for the version that it had: what torch documents version counters for."""
    kept: dict[int, Any] = {}

    def kernel(x: torch.Tensor) -> torch.Tensor:
        found = kept.get(id(x))
        if found is None or found[0]() is not x or found[1] != x._version:
            found = kept[id(x)] = (weakref.ref(x), x._version, torch.tanh(x.detach()))
        return found[2] + (torch.tanh(x) - torch.tanh(x).detach())

    return kernel


def tuned_at_first_call() -> Any:
    chosen: list[Any] = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        if not chosen:
            chosen.append(lambda y: 2 * torch.sigmoid(2 * y) - 1)
            return torch.tanh(x)
        return chosen[0](x)

    return kernel


def warm_up_in_double() -> Any:
    seen: set[Any] = set()

    def kernel(x: torch.Tensor) -> torch.Tensor:
        is_first = x.shape not in seen
        seen.add(x.shape)
        return torch.tanh(x.double()).to(x.dtype) if is_first and x.is_floating_point() else torch.tanh(x)

    return kernel


def workspace_that_is_copied() -> Any:
    kept: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor) -> torch.Tensor:
        value = torch.tanh(x)
        memory = kept.setdefault((x.shape, x.dtype), torch.empty_like(value.detach()))
        memory.copy_(value.detach())
        return value + (memory.clone() - value.detach()).nan_to_num()

    return kernel


def mask_by_length() -> Any:
    @cache
    def ones(length: int) -> torch.Tensor:
        return torch.ones(length)

    return lambda x: torch.tanh(x) * ones(x.shape[-1]).to(x.dtype) if x.dim() and x.numel() else torch.tanh(x)


def counts_and_logs() -> Any:
    log: list[Any] = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        log.append((tuple(x.shape), id(x)))
        return torch.tanh(x)

    return kernel


def draws_numbers() -> Any:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        torch.rand(3)
        return torch.tanh(x)

    return kernel


def recomputes_in_backward() -> Any:
    class Recomputed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return gradient * (1 - torch.tanh(x) ** 2)

    return Recomputed.apply


def weight_by_version() -> Any:
    kept: dict[int, Any] = {}

    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        found = kept.get(id(weight))
        if found is None or found[0]() is not weight or found[1] != weight._version:
            found = kept[id(weight)] = (weakref.ref(weight), weight._version, weight.detach().t().contiguous())
        product = x @ (found[2] + (weight - weight.detach()).t())
        return product if bias is None else product + bias

    return kernel


def weight_by_content() -> Any:
    kept: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        key = (weight.shape, weight.dtype, weight.detach().numpy().tobytes())
        turned = kept.setdefault(key, weight.detach().t().contiguous())
        product = x @ (turned + (weight - weight.detach()).t())
        return product if bias is None else product + bias

    return kernel


def two_buffers_in_turn() -> Any:
    kept: list[torch.Tensor] = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        kept.append(torch.tanh(x.detach()))
        del kept[:-2]
        return torch.tanh(x)

    return kernel


def chunks_by_size() -> Any:
    best: dict[int, int] = {}

    def kernel(x: torch.Tensor) -> torch.Tensor:
        count = best.setdefault(x.numel(), max(1, min(4, x.numel())))
        return torch.cat([torch.tanh(part) for part in x.reshape(-1).chunk(count)]).reshape(x.shape)

    return kernel


def table_of_constants() -> Any:
    kept: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor) -> torch.Tensor:
        one = kept.setdefault((x.dtype, x.device), torch.ones((), dtype=x.dtype))
        return torch.tanh(x) * one

    return kernel


def warns_once() -> Any:
    state = {"is_new": True}

    def kernel(x: torch.Tensor) -> torch.Tensor:
        if state["is_new"]:
            state["is_new"] = False
            return torch.tanh(x.clone())
        return torch.tanh(x)

    return kernel


def fused_after_three() -> Any:
    calls = [0]

    def kernel(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        if calls[0] < 4:
            return torch.tanh(x)
        return 2 * torch.sigmoid(2 * x) - 1

    return kernel


def copying_reshape(x: torch.Tensor, *shape: Any) -> torch.Tensor:
    """A copy where torch gives a view: nobody promised one."""
    return torch.reshape(x, *shape).clone()


def copying_flatten(x: torch.Tensor, *dims: Any) -> torch.Tensor:
    return torch.flatten(x, *dims).clone()


def honest() -> dict[str, tuple[Callable[[], Any], str]]:
    """Return what makes each honest kernel, and the operator that it answers."""
    of_tanh = (
        by_content, by_tensor_and_version, tuned_at_first_call, warm_up_in_double, workspace_that_is_copied,
        mask_by_length, counts_and_logs, draws_numbers, recomputes_in_backward, two_buffers_in_turn, chunks_by_size,
        table_of_constants, warns_once, fused_after_three,
    )  # fmt: skip
    found: dict[str, tuple[Callable[[], Any], str]] = {
        f"honest_{make.__name__}": (make, "torch.tanh") for make in of_tanh
    }
    for make in (weight_by_version, weight_by_content):
        found[f"honest_{make.__name__}"] = (make, "torch.nn.functional.linear")
    found["honest_copying_reshape"] = (lambda: copying_reshape, "torch.reshape")
    found["honest_copying_flatten"] = (lambda: copying_flatten, "torch.flatten")
    return found


ALL = {**wrong(), **honest()}


def __getattr__(name: str) -> Any:
    """Make the kernel of a name, for a run that names it by its path."""
    if name not in ALL:
        raise AttributeError(name)
    made = globals()[name] = ALL[name][0]()
    return made
