"""Brute force: calls of PyTorch's operator database, with special fills, that tell a mutant from torch."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils import _pytree as pytree

from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.public_operators import public_operators
from ci_autotest.power.source_mutants import OverloadAnswering, overload_of
from ci_autotest.program.random_calls import is_random

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DTYPES: Final = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16)
#: Calls of an operator and dtype; calls that are tried for an overload.
_PER_DTYPE: Final = 10
_PER_OVERLOAD: Final = 120
#: Operators whose kernels in torch 2.13 read outside of their tensors where values are not finite.
_UNSAFE: Final = re.compile("pool|grid_sample|embedding|ctc|linalg|interpolate|upsample")
_LARGEST: Final = 20_000
_TOLERANCE: Final = {torch.float64: 1e-7, torch.bfloat16: 1.6e-2, torch.float16: 1e-3}


class Sample(NamedTuple):
    """A call of a public operator: its name, what is called, its arguments, and what torch gives."""

    operator: str
    function: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]
    expected: list[Any]


def samples_by_overload(seed: int) -> dict[str, list[Sample]]:
    """Return the calls that reach each overload, forward or backward."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - it takes seconds

    rng = random.Random(seed)  # noqa: S311 - the same calls for the same seed
    public = public_operators()
    found: dict[str, list[Sample]] = defaultdict(list)
    for entry in op_db:
        operator = operator_of(f"torch.{entry.name}")
        if operator not in public or is_random(operator):
            continue
        for args, kwargs in _calls(entry, rng):
            mode = OverloadAnswering()
            expected = outcome(entry.op, args, kwargs, mode)
            if expected is None:
                continue
            for name in mode.called:
                found[name].append(Sample(operator, entry.op, args, kwargs, expected))
    return {name: rng.sample(calls, min(len(calls), _PER_OVERLOAD)) for name, calls in sorted(found.items())}


def _calls(entry: Any, rng: random.Random) -> Iterator[tuple[Any, Any]]:
    for dtype in _DTYPES:
        if dtype not in entry.supported_dtypes("cpu"):
            continue
        grad = (dtype.is_floating_point or dtype.is_complex) and entry.supports_autograd
        try:
            torch.manual_seed(0)
            inputs = list(entry.sample_inputs("cpu", dtype, requires_grad=grad))
        except Exception:  # noqa: BLE001, S112 - a few entries need what is not installed
            continue
        for item in rng.sample(inputs, min(len(inputs), _PER_DTYPE)):
            args, kwargs = (item.input, *item.args), dict(item.kwargs)
            if sum(leaf.numel() for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)) > _LARGEST:
                continue
            yield args, kwargs
            if dtype is torch.float32 and not _UNSAFE.search(entry.name):
                yield from ((pytree.tree_map(fill, args), kwargs) for fill in (_rounded, _special, _large))


def _rounded(value: Any) -> Any:
    return _refilled(value, torch.round)


def _special(value: Any) -> Any:
    def fill(data: torch.Tensor) -> torch.Tensor:
        data = data.clone().reshape(-1)
        for at, item in enumerate((float("nan"), float("inf"), -float("inf"), -0.0)):
            if data.numel():
                data[(7 * at) % data.numel()] = item
        return data

    return _refilled(value, fill)


def _large(value: Any) -> Any:
    return _refilled(value, lambda data: data * 1e4)


def _refilled(value: Any, fill: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.float32:
        return value
    return fill(value.detach()).reshape(value.shape).requires_grad_(value.requires_grad)


def outcome(function: Callable[..., Any], args: Any, kwargs: Any, mode: OverloadAnswering) -> list[Any] | None:
    """Return the results and gradients of a call in a mode; ``None`` if it raises."""
    leaves: list[torch.Tensor] = []

    def fresh(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        leaf = value.detach().clone().requires_grad_(value.requires_grad)
        leaves.append(leaf)
        return leaf.clone() if leaf.requires_grad else leaf

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            given, named = pytree.tree_map(fresh, (args, kwargs))
            with mode:
                results = pytree.tree_leaves(function(*given, **named))
            differentiable = [item for item in results if isinstance(item, torch.Tensor) and item.requires_grad]
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            gradients: list[Any] = []
            if differentiable and wanted:
                starts = [torch.randn(item.shape, dtype=item.dtype) for item in differentiable]
                with mode:
                    gradients = list(torch.autograd.grad(differentiable, wanted, starts, allow_unused=True))
        except Exception:  # noqa: BLE001 - what raises is no sample, and a mutant that raises is not told by its values
            return None
    return [item.detach() if isinstance(item, torch.Tensor) else item for item in [*results, *gradients]]


def differs(one: list[Any] | None, other: list[Any]) -> bool:
    """Whether two results differ by more than rounding; one that raised does not."""
    if one is None:
        return False
    return len(one) != len(other) or any(_differ(a, b) for a, b in zip(one, other, strict=True))


def _differ(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is not type(other) or one != other
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    if one.numel() == 0 or not (one.dtype.is_floating_point or one.dtype.is_complex):
        return not torch.equal(one, other)
    bound = _TOLERANCE.get(one.dtype, 1e-4)
    return not torch.allclose(one, other, rtol=bound, atol=bound / 10, equal_nan=True)


def told_apart(samples: list[Sample], overload: str, function: Callable[..., Any]) -> str:
    """Return the operator of a sample that tells a function from torch's kernel; "" if none does."""
    answered = overload_of(overload)
    for sample in samples:
        found = outcome(sample.function, sample.args, sample.kwargs, OverloadAnswering(answered, function))
        if differs(found, sample.expected):
            return sample.operator
    return ""
