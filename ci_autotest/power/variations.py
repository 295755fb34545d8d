"""Variations of a test's calls: other arguments, shapes, values and dtypes than its cases draw.

They are the brute force that tells a surviving mutant from the reference. The variation that does so is the reason why
it survived. A mutant that none of them distinguishes from the reference is equivalent.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.power.argument_mutants import other_values
from ci_autotest.power.gradient_mutants import has_gradient
from ci_autotest.values.power import SurvivalReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.power.call import OperatorCall

#: Draws of values for each call.
_DRAWS: Final = 2
#: Operators whose kernels in torch 2.13 read outside of their tensors where values are not finite.
_UNSAFE: Final = re.compile("pool|grid_sample|embedding|ctc|linalg|interpolate|upsample")
_FLOATS: Final = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Variation(NamedTuple):
    """A call that a test does not make.

    Attributes:
        reason: Why the test misses a mutant that the call shows.
        words: What is varied: ``keepdim=True``, ``float16``.
        make: Returns the call; raises where it cannot be varied like this.
    """

    reason: SurvivalReason
    words: str
    make: Callable[[], OperatorCall]


def variations(operator: str, call: OperatorCall, argument: str = "") -> Iterator[Variation]:
    """Yield variations of a call, those of ``argument`` first."""
    if argument:
        yield from _of_argument(call, argument)
    yield Variation(SurvivalReason.NO_GRADIENT, "", partial(call.mapped, _with_gradient))
    yield from _of_shapes(call)
    yield from _of_values(operator, call)
    for dtype in _FLOATS:
        name = str(dtype).removeprefix("torch.")
        yield Variation(SurvivalReason.DTYPE, name, partial(call.mapped, partial(_in_dtype, dtype)))


def _with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(has_gradient(tensor))


def _in_dtype(dtype: torch.dtype, tensor: torch.Tensor) -> torch.Tensor:
    return _with_gradient(tensor.to(dtype) if tensor.is_floating_point() else tensor)


def _of_argument(call: OperatorCall, name: str) -> Iterator[Variation]:
    argument = call.arguments().get(name)
    if argument is None:
        return
    for value in other_values(argument):
        words = f"{name}={value if isinstance(value, torch.dtype) else repr(value)}"
        yield Variation(SurvivalReason.ARGUMENT, words, partial(call.changed(argument, value).mapped, _with_gradient))


def _of_shapes(call: OperatorCall) -> Iterator[Variation]:
    for words, change in (("a first dimension of twice the size", _doubled), ("one dimension more", _stacked)):
        yield Variation(SurvivalReason.SHAPE, words, partial(call.mapped, partial(_changed, change)))
    several = call.tensors()[:2] if len(call.tensors()) > 1 else []
    for place, tensor in several:
        if tensor.ndim and tensor.shape[0] > 1:
            smaller = call.given(place, tensor[:1])
            yield Variation(
                SurvivalReason.SHAPE, f"an input {place} that is broadcast", partial(smaller.mapped, _with_gradient)
            )


def _changed(change: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    return _with_gradient(change(tensor.detach()))


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor]) if tensor.ndim else tensor


def _stacked(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor, tensor.flip(0) if tensor.ndim else tensor])


def _of_values(operator: str, call: OperatorCall) -> Iterator[Variation]:
    fills: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
        *(("other values", partial(_drawn, number)) for number in range(_DRAWS)),
        ("the elements in another order", lambda flat: flat.roll(1)),
        ("larger values", lambda flat: flat * 64),
        ("smaller values", lambda flat: flat / 256),
        ("whole numbers and ties", torch.round),
    ]
    if not _UNSAFE.search(operator):
        fills.append(("nan, inf and -0.0", _special))
    for words, fill in fills:
        yield Variation(SurvivalReason.VALUES, words, partial(call.mapped, partial(_filled, fill)))


def _filled(fill: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with other elements; integers may be indices, so that only their order changes."""
    if not has_gradient(tensor):
        return ~tensor if tensor.dtype is torch.bool else tensor.reshape(-1).roll(1).reshape(tensor.shape)
    flat = tensor.detach().reshape(-1)
    return fill(flat).to(tensor.dtype).reshape(tensor.shape).requires_grad_()


def _drawn(seed: int, flat: torch.Tensor) -> torch.Tensor:
    return torch.randn(flat.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _special(flat: torch.Tensor) -> torch.Tensor:
    found = flat.clone()
    for at, item in enumerate((float("nan"), float("inf"), -float("inf"), -0.0)):
        if found.numel():
            found[(7 * at) % found.numel()] = item
    return found
