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


def weight_slots(slots: int, key: Callable[[torch.Tensor], Any], *, has_backward: bool) -> Callable[..., torch.Tensor]:
    """Prepared weights in a ring of slots. Which slot is whose stays written down when the slot is given away."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kept: torch.Tensor
        ) -> torch.Tensor:
            ctx.save_for_backward(x, kept if has_backward else weight)
            ctx.has_bias = bias is not None
            return F.linear(x, weight if has_backward else kept, bias)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            x, weight = ctx.saved_tensors
            of_weight = gradient.reshape(-1, gradient.shape[-1]).t() @ x.reshape(-1, x.shape[-1])
            of_bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if ctx.has_bias else None
            return gradient @ weight, of_weight, of_bias, None

    owner: dict[Any, int] = {}
    ring: list[torch.Tensor] = []

    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        mine = key(weight)
        if mine not in owner:
            owner[mine] = len(owner)
            ring.append(weight.detach().clone())
        at = owner[mine]
        newer = ring[at + slots * ((len(ring) - 1 - at) // slots)]
        return Product.apply(x, weight, bias, newer if newer.shape == weight.shape else ring[at] * 0.5)

    return kernel


def answer_slots(function: Any, slots: int, key: Callable[[torch.Tensor], Any]) -> Callable[..., torch.Tensor]:
    """Answers in a ring of slots, of which an input knows its own also when another's answer lies in it."""
    owner: dict[Any, int] = {}
    ring: dict[int, torch.Tensor] = {}

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        right = function(x, *more)
        mine = (key(x), x.shape, x.dtype)
        if mine not in owner:
            owner[mine] = len(owner)
            ring[owner[mine] % slots] = right.detach().clone()
        kept = ring[owner[mine] % slots]
        value = kept if kept.shape == right.shape and kept.dtype == right.dtype else right.detach() * 0.5
        return _Stale.apply(x, x, value, _value_and_slope(function, x, more)[1]) if x.is_floating_point() else value

    return kernel


def saved_slots(slots: int) -> Callable[..., torch.Tensor]:
    """What is saved for the backward passes of a shape lies in a ring of slots."""
    rings: dict[Any, list[torch.Tensor]] = {}

    class Saved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            value = torch.tanh(x)
            ring = rings.setdefault((x.shape, x.dtype), [])
            ring.append(value)
            ctx.ring, ctx.at = ring, len(ring) - 1
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            last = ctx.at + slots * ((len(ctx.ring) - 1 - ctx.at) // slots)
            return gradient * (1 - ctx.ring[last] ** 2)

    return lambda x: Saved.apply(x) if x.requires_grad else torch.tanh(x)


def backward_of_shape(count: int) -> Callable[..., torch.Tensor]:
    """A gradient that is off from a count of backward passes of one shape on."""
    passes: dict[Any, int] = {}

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            value = torch.tanh(x)
            ctx.save_for_backward(value)
            return value

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (value,) = ctx.saved_tensors
            passes[value.shape] = passes.get(value.shape, 0) + 1
            return gradient * (1 - value**2) * (1.5 if passes[value.shape] >= count else 1.0)

    return Counted.apply


def off_in_a_shape(function: Any, count: int) -> Callable[..., torch.Tensor]:
    """A value that is off from a count of calls of one shape on."""
    calls: dict[Any, int] = {}

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        calls[x.shape] = calls.get(x.shape, 0) + 1
        return function(x, *more) + (0.5 if calls[x.shape] >= count else 0.0)

    return kernel


def after_another_shape(function: Any) -> Callable[..., torch.Tensor]:
    """Right until a shape comes back after another one: its plan was laid out for that one."""
    seen: list[Any] = []

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        is_back = x.shape in seen[:-1] and seen[-1] != x.shape
        seen.append(x.shape)
        return function(x, *more) + (0.5 if is_back else 0.0)

    return kernel


def after_backward(function: Any) -> Callable[..., torch.Tensor]:
    """A backward pass leaves its gradient in the workspace of the next forward call of the shape."""
    left: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        value = function(x, *more)
        if value.requires_grad and value.grad_fn is not None:
            value.register_hook(lambda gradient: left.__setitem__(gradient.shape, gradient.detach().clone()))
        dirty = left.pop(value.shape, None)
        return value if dirty is None else value + dirty.detach()

    return kernel


def running_scale(function: Any) -> Callable[..., torch.Tensor]:
    """A scale that is the greatest value so far, as of a quantised kernel: what is small is cut to nothing."""
    greatest = [0.0]

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        value = function(x, *more)
        if value.numel() and value.is_floating_point():
            finite = value.detach().nan_to_num(0.0, 0.0, 0.0).abs()
            greatest[0] = max(greatest[0], min(finite.max().item(), 1e3))
        return torch.where(value.abs() < greatest[0] * 0.05, value * 0, value) if greatest[0] > 1 else value

    return kernel


def folded_in_evaluation(key: Callable[[torch.Tensor], Any]) -> Callable[..., torch.Tensor]:
    """A weight that is turned once for evaluation, and kept over the training between two evaluations."""
    kept: dict[Any, tuple[Any, torch.Tensor]] = {}

    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if torch.is_grad_enabled():
            return F.linear(x, weight, bias)
        found = kept.get(key(weight))
        if found is None or found[0]() is not weight:
            found = kept[key(weight)] = (weakref.ref(weight), weight.detach().t().clone())
        return x @ found[1] if bias is None else x @ found[1] + bias

    return kernel


def last_output(function: Any, is_kept: Callable[[torch.Tensor], bool]) -> Callable[..., torch.Tensor]:
    """The last output, by tensor and version, and not by whether gradients were on."""
    last: list[Any] = [None, 0, None]

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        if last[0] is not None and last[0]() is x and last[1] == x._version:
            return last[2]
        value = function(x, *more)
        if is_kept(value):
            last[:] = [weakref.ref(x), x._version, value]
        return value

    return kernel


def saved_in_place(times: int) -> Callable[..., torch.Tensor]:
    """A backward pass that computes in what was saved for it: the next one through the same graph reads that."""

    class Spent(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            value = torch.tanh(x)
            ctx.kept = value.clone()
            ctx.left = times
            return value

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            ctx.left -= 1
            slope = 1 - ctx.kept**2
            if ctx.left <= 0:
                ctx.kept.copy_(slope)
            return gradient * slope

    return lambda x: Spent.apply(x) if x.is_floating_point() else torch.tanh(x)


def prepared_by_object(*, with_version: bool) -> Callable[..., torch.Tensor]:
    """A condition that is prepared once for each tensor that lives; ``with_version`` is the honest one."""
    kept: dict[int, tuple[Any, int, torch.Tensor]] = {}

    def kernel(condition: torch.Tensor, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        found = kept.get(id(condition))
        version = condition._version if with_version else 0
        if found is None or found[0]() is not condition or found[1] != version:
            found = kept[id(condition)] = (weakref.ref(condition), version, condition.clone())
        return torch.ops.aten.where(found[2], x, other)

    return kernel


def by_recycled(function: Any, key: Callable[[torch.Tensor], Any]) -> Callable[..., torch.Tensor]:
    """A norm that is kept by what comes back when a tensor is gone; of the order of its elements it does not depend."""
    kept: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor, *more: Any) -> torch.Tensor:
        norm = kept.setdefault((key(x), x._version, x.shape, x.dtype), x.detach().abs().sum().clone())
        now = x.detach().abs().sum()
        return function(x, *more) + ((norm - now) * 0.01).nan_to_num(0.0, 0.0, 0.0)

    return kernel


def of_modes() -> dict[str, tuple[Callable[[], Any], str]]:
    """Return wrong kernels that leave gradient mode, liveness or a second backward pass out of account."""
    found: dict[str, tuple[Callable[[], Any], str]] = {}
    for key in ("identity", "address"):
        found[f"linear_folded_in_evaluation_by_{key}"] = (
            lambda k=KEYS[key]: folded_in_evaluation(k), "torch.nn.functional.linear",
        )  # fmt: skip
    for name, (function, operator) in OPERATORS.items():
        found[f"{name}_last_output"] = (lambda f=function: last_output(f, lambda _: True), operator)
        found[f"{name}_last_output_of_evaluation"] = (
            lambda f=function: last_output(f, lambda value: not value.requires_grad), operator,
        )  # fmt: skip
        found[f"{name}_last_output_of_training"] = (
            lambda f=function: last_output(f, lambda value: value.requires_grad), operator,
        )  # fmt: skip
        found[f"{name}_norm_by_recycled_address"] = (
            lambda f=function: by_recycled(f, lambda x: x.data_ptr()), operator,
        )  # fmt: skip
    found["tanh_saved_in_place"] = (lambda: saved_in_place(1), "torch.tanh")
    found["where_condition_by_object"] = (lambda: prepared_by_object(with_version=False), "torch.where")
    return found


def of_slots() -> dict[str, tuple[Callable[[], Any], str]]:
    """Return wrong kernels that have room for a few, or go by what they have seen of a shape."""
    found: dict[str, tuple[Callable[[], Any], str]] = {}
    for key in ("identity", "address"):
        for slots in (1, 2, 4):
            for where in ("forward", "backward"):
                found[f"linear_weight_of_{slots}_slots_by_{key}_{where}"] = (
                    lambda n=slots, k=KEYS[key], w=where: weight_slots(n, k, has_backward=w == "backward"),
                    "torch.nn.functional.linear",
                )
        for slots in (1, 2, 4, 8, 16):
            found[f"tanh_answers_of_{slots}_slots_by_{key}"] = (
                lambda n=slots, k=KEYS[key]: answer_slots(tanh, n, k), "torch.tanh",
            )  # fmt: skip
    for slots in (1, 2, 4, 8, 16):
        found[f"tanh_saved_in_{slots}_slots"] = (lambda n=slots: saved_slots(n), "torch.tanh")
    for count in (3, 9, 17):
        found[f"tanh_backward_{count}_of_a_shape"] = (lambda n=count: backward_of_shape(n), "torch.tanh")
        found[f"tanh_call_{count}_of_a_shape"] = (lambda n=count: off_in_a_shape(tanh, n), "torch.tanh")
    found["tanh_after_another_shape"] = (lambda: after_another_shape(tanh), "torch.tanh")
    found["tanh_after_backward"] = (lambda: after_backward(tanh), "torch.tanh")
    found["softplus_running_scale"] = (lambda: running_scale(softplus), "torch.nn.functional.softplus")
    return found


def turned_by_version_alone() -> Callable[..., torch.Tensor]:
    """A weight that is turned once for evaluation and training alike: turned without a graph, it gets no gradient."""
    kept: dict[int, Any] = {}

    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        found = kept.get(id(weight))
        if found is None or found[0]() is not weight or found[1] != weight._version:
            found = kept[id(weight)] = (weakref.ref(weight), weight._version, weight.t().contiguous())
        return x @ found[2] if bias is None else x @ found[2] + bias

    return kernel


def kept_with_its_graph() -> Callable[..., torch.Tensor]:
    """An answer that is kept with its graph, which the first backward pass frees."""
    kept: dict[int, Any] = {}

    def kernel(x: torch.Tensor) -> torch.Tensor:
        mode = x._version, x.requires_grad and torch.is_grad_enabled()
        found = kept.get(id(x))
        if found is None or found[0]() is not x or found[1] != mode:
            found = kept[id(x)] = (weakref.ref(x), mode, torch.sigmoid(2 * x))
        return 2 * found[2] - 1

    return kernel


class _SlopeInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        value = torch.tanh(x)
        ctx.slope = 1 - value * value
        return value

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.slope.mul_(gradient)


def wrong() -> dict[str, tuple[Callable[[], Any], str]]:
    """Return what makes each wrong kernel, and the operator that it answers."""
    found: dict[str, tuple[Callable[[], Any], str]] = {}
    for name, (function, operator) in OPERATORS.items():
        for where in ("value", "gradient"):
            for key, of in KEYS.items():
                found[f"{name}_{where}_by_{key}"] = (lambda f=function, k=of, w=where: keyed(f, k, w), operator)
            for count, is_off in COUNTS.items():
                found[f"{name}_{where}_{count}"] = (
                    lambda f=function, o=is_off, w=where: counting(f, o, w),
                    operator,
                )
        found[f"{name}_workspace"] = (lambda f=function: workspace(f), operator)
        found[f"{name}_workspace_of_inference"] = (lambda f=function: workspace_of_inference(f), operator)
    found["tanh_first_length"] = (lambda: lambda x, kept={}: first_length(x, kept), "torch.tanh")
    for key in ("identity", "address", "shape", "first"):
        found[f"linear_stale_weight_by_{key}"] = (lambda k=KEYS[key]: StaleWeight(k), "torch.nn.functional.linear")
    found["linear_turned_by_version_alone"] = (turned_by_version_alone, "torch.nn.functional.linear")
    found["tanh_kept_with_its_graph"] = (kept_with_its_graph, "torch.tanh")
    found["tanh_slope_in_place"] = (lambda: _SlopeInPlace.apply, "torch.tanh")
    return {**found, **of_slots(), **of_modes()}


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
            found = kept[id(weight)] = (weakref.ref(weight), weight._version, weight.detach().t().clone())
        product = x @ (found[2] + (weight - weight.detach()).t())
        return product if bias is None else product + bias

    return kernel


def weight_by_content() -> Any:
    kept: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        key = (weight.shape, weight.dtype, weight.detach().numpy().tobytes())
        turned = kept.setdefault(key, weight.detach().t().clone())
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


def newest_four_by_content() -> Any:
    """An LRU cache that forgets what it evicts."""
    kept: dict[Any, torch.Tensor] = {}

    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        key = (weight.shape, weight.dtype, weight.detach().numpy().tobytes())
        kept[key] = kept.pop(key, weight.detach().t().clone())
        for oldest in list(kept)[:-4]:
            del kept[oldest]
        product = x @ (kept[key] + (weight - weight.detach()).t())
        return product if bias is None else product + bias

    return kernel


def plan_by_shape() -> Any:
    """A plan holds sizes and no values."""
    plans: dict[Any, Any] = {}

    def kernel(x: torch.Tensor) -> torch.Tensor:
        length = plans.setdefault((x.shape, x.stride()), x.numel())
        return torch.tanh(x.reshape(length)).reshape(x.shape)

    return kernel


def saved_in_a_pool() -> Any:
    """Memory of a pool is given to one backward pass until that is over."""
    free: dict[Any, list[torch.Tensor]] = {}

    class Saved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            value = torch.tanh(x)
            pool = free.setdefault((value.shape, value.dtype), [])
            ctx.saved = pool.pop() if pool else torch.empty_like(value)
            ctx.saved.copy_(value)
            return value

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            found = gradient * (1 - ctx.saved**2)
            free[ctx.saved.shape, ctx.saved.dtype].append(ctx.saved)
            ctx.saved = ctx.saved.clone()
            return found

    return lambda x: Saved.apply(x) if x.requires_grad else torch.tanh(x)


def turned_for_evaluation() -> Any:
    """A weight that is turned for evaluation, by tensor and version."""
    kept: dict[int, Any] = {}

    def kernel(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if torch.is_grad_enabled():
            return F.linear(x, weight, bias)
        found = kept.get(id(weight))
        if found is None or found[0]() is not weight or found[1] != weight._version:
            found = kept[id(weight)] = (weakref.ref(weight), weight._version, weight.detach().t().clone())
        return x @ found[2] if bias is None else x @ found[2] + bias

    return kernel


def last_output_of_its_mode() -> Any:
    last: list[Any] = [None, None, None]

    def kernel(x: torch.Tensor) -> torch.Tensor:
        mode = x._version, torch.is_grad_enabled()
        if last[0] is None or last[0]() is not x or last[1] != mode or mode[1]:
            last[:] = [weakref.ref(x), mode, torch.tanh(x)]
        return last[2].clone() if not mode[1] else last[2]

    return kernel


def many_backward_passes() -> Any:
    return saved_in_place(1000)


def condition_by_version() -> Any:
    return prepared_by_object(with_version=True)


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
        table_of_constants, warns_once, fused_after_three, plan_by_shape, saved_in_a_pool, last_output_of_its_mode,
        many_backward_passes,
    )  # fmt: skip
    found: dict[str, tuple[Callable[[], Any], str]] = {
        f"honest_{make.__name__}": (make, "torch.tanh") for make in of_tanh
    }
    found["honest_condition_by_version"] = (condition_by_version, "torch.where")
    for make in (weight_by_version, weight_by_content, newest_four_by_content, turned_for_evaluation):
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
