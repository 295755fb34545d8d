"""Values of ranks as whole tensors: gathered on every rank, and what the ranks must agree on.

Every rank gathers the whole (``full_tensor``). All of them must hold the same bits, which covers replicas too, and each
part must have the shape that the placement says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.distributed.tensor import DTensor

from ci_autotest.backends.framework.response import ResponseModule
from ci_autotest.backends.ranks.parts import distribution_of, part_of
from ci_autotest.backends.ranks.ranks import PartError, numbered, other_bits
from ci_autotest.backends.sameness import is_same
from ci_autotest.program.distribution import local_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.ranks.rank_run import Ranks
    from ci_autotest.program.distribution import Distribution

SAME_BITS: Final = "the same bits on all ranks"


class Gathered(NamedTuple):
    """A tensor as the ranks of this process see it.

    Attributes:
        whole: The whole as this process has it, a simulated tensor if it runs all ranks.
        distribution: How it lies; ``None`` if it has a placement that a program cannot name.
        requires_grad: Whether it requires grad.
        is_leaf: Whether it is a leaf.
    """

    whole: torch.Tensor
    distribution: Distribution | None
    requires_grad: bool
    is_leaf: bool


def gathered(value: torch.Tensor, ranks: Ranks) -> Gathered:
    """Gather a value; called inside of the ranks' context, on all ranks.

    Raises:
        PartError: A rank holds a part of another shape than its placement says.
    """
    flags = value.requires_grad, value.is_leaf
    if not isinstance(value, DTensor):
        return Gathered(value, None, *flags)
    distribution = distribution_of(ranks.sizes, value.placements)
    part = part_of(value)
    if distribution is None:
        with torch.no_grad():
            return Gathered(value.full_tensor(), None, *flags)
    _refuse_other_parts(ranks.shapes(part), tuple(value.shape), distribution)
    if distribution.is_replicated:
        return Gathered(part, distribution, *flags)
    with torch.no_grad():
        return Gathered(value.full_tensor(), distribution, *flags)


def _refuse_other_parts(
    parts: Mapping[int, tuple[int, ...]], whole: tuple[int, ...], distribution: Distribution
) -> None:
    shapes = local_shapes(whole, distribution)
    for rank, part in parts.items():
        if part != shapes[rank]:
            expected = f"a part of shape {list(shapes[rank])}, {distribution} of {list(whole)}"
            seen = f"{numbered([rank])} holds a part of shape {list(part)}"
            raise PartError(seen, expected)


def as_plain(whole: torch.Tensor, *, requires_grad: bool, is_leaf: bool) -> torch.Tensor:
    """Return a whole as the tensor that is compared, with the flags of the DTensor."""
    # A copy, because what is replicated is gathered without one.
    found = whole.detach().clone()
    if not requires_grad or not (found.is_floating_point() or found.is_complex()):
        return found
    found.requires_grad_()
    # The view of a leaf that requires grad is not a leaf.
    return found if is_leaf else found.view(found.shape)


def disagreement(wholes: Sequence[torch.Tensor]) -> tuple[str, str] | None:
    """Return what the ranks hold and what they should hold; ``None`` if that is the same.

    Args:
        wholes: The whole that each rank has gathered, in the order of ranks.
    """
    others = [rank for rank, whole in enumerate(wholes) if not is_same(whole, wholes[0])]
    if others:
        rest = [rank for rank in range(len(wholes)) if rank not in others]
        return other_bits(others, rest), SAME_BITS
    return None


def plain_value(value: Any) -> Any:
    """Return a value that is no tensor as it is compared: a tuple without its parts, which are steps of their own."""
    if isinstance(value, torch.Size):
        return tuple(int(size) for size in value)
    return (None,) * len(value) if isinstance(value, tuple | list) and any(map(_is_tensor, value)) else value


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def module_of(state: dict[str, torch.Tensor]) -> ResponseModule:
    """Return a module as it is compared: its state."""
    return ResponseModule(state)
