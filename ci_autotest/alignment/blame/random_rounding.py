"""Random rounding: how far a correct computation in a narrow dtype may be off, rounding between steps included.

The program is run in float64, its operators taken apart into those that torch has no smaller ones for, and each result
that a narrower significand does not hold is rounded up or down at random. What the results then differ by is what any
computation of that kind may be off by; a result that is exact in the dtype is left alone, so that nothing is excused
where nothing is rounded. A sum of one term is exact, too, as of a softmax that is 1 in one place and 0 elsewhere. What
another formula of the same result has there, whose parts cancel but for rounding, is asked for apart (``Formula``).

Source:
    J. Vignes, "A stochastic arithmetic for reliable scientific computation", Mathematics and Computers in Simulation 35
    (1993): random rounding as a measure of the error of a computation. D. S. Parker, "Monte Carlo arithmetic" (1997),
    for moving the terms of a sum, which are rounded on the way.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._ops import OpOverload
#: Dtypes that there is something to round of.
_WIDE: Final = frozenset({torch.float64, torch.complex128})
#: Operators that round once or not at all, though torch has others that they are made of: that takes time alone.
_WHOLE: Final = frozenset({
    torch.ops.aten.cat, torch.ops.aten.conj_physical, torch.ops.aten.rsub, torch.ops.aten.stack, torch.ops.aten.sum,
})  # fmt: skip
_SOFTMAX: Final = frozenset({torch.ops.aten.softmax, torch.ops.aten._softmax})  # noqa: SLF001 - its only name
#: Sums of what was computed before, whose terms another order or formula rounds otherwise.
_SUMS: Final = frozenset({
    torch.ops.aten.addmm, torch.ops.aten.baddbmm, torch.ops.aten.bmm, torch.ops.aten.dot, torch.ops.aten.mm,
    torch.ops.aten.mv, torch.ops.aten.sum,
})  # fmt: skip


class Formula(Enum):
    """Which computation is rounded: the reference's own, or another one of the same result.

    Attributes:
        IN_ANY_ORDER: The terms of a sum are rounded where the sum itself is exact.
        OF_KEPT_DENOMINATORS: Besides, a softmax is the exponential of what is above the logarithm of its denominator.
    """

    ITS_OWN = auto()
    IN_ANY_ORDER = auto()
    OF_KEPT_DENOMINATORS = auto()


class RandomRounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Round what operators give in float64 to fewer bits, up or down at random.

    Args:
        bits: Of the significand: 24 of single precision.
        seed: Of the choices.
        formula: Of the reference, or another one.
    """

    def __init__(self, bits: int, seed: int, formula: Formula = Formula.ITS_OWN) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._bits, self._formula = bits, formula
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer one operator."""
        kwargs = kwargs or {}
        is_kept = self._formula is Formula.OF_KEPT_DENOMINATORS and func.overloadpacket in _SOFTMAX
        smaller = _softmax if is_kept else _smaller(func)
        if smaller is not None:
            with self:
                return smaller(*args, **kwargs)
        found = func(*args, **kwargs)
        if func._schema.is_mutable:  # noqa: SLF001 - torch tells it nowhere else
            return tree_map_only(torch.Tensor, lambda tensor: tensor.copy_(self._rounded(tensor)), found)
        is_asked = self._formula is not Formula.ITS_OWN and func.overloadpacket in _SUMS
        if func.is_view or (self._is_exact(found) and not is_asked):
            return found
        if not {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded} & set(func.tags):
            args, kwargs = tree_map_only(torch.Tensor, self._moved, (args, kwargs))
            found = func(*args, **kwargs)
        return tree_map_only(torch.Tensor, self._rounded, found)

    def _is_exact(self, found: object) -> bool:
        """Whether all that an operator gives is held by the narrower significand: a copy, say, or a sum of zeros."""
        tensors = [each for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
        return all(bool((self._below(each) == each).all()) for each in tensors)

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the terms of a sum as they are once they have been rounded."""
        if tensor.dtype not in _WIDE:
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=self._generator, dtype=torch.float64) * 2 - 1
        return tensor * (1 + signs * 2.0**-self._bits)

    def _rounded(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return each element as one of its two neighbours of fewer bits, itself where it has no more."""
        if tensor.dtype not in _WIDE:
            return tensor
        if tensor.is_complex():
            return torch.view_as_complex(self._rounded(torch.view_as_real(tensor)))
        below = self._below(tensor)
        is_up = torch.randint(0, 2, tensor.shape, generator=self._generator, dtype=torch.bool)
        above = below + torch.ldexp(torch.ones_like(below), torch.frexp(tensor).exponent - self._bits)
        return torch.where((below == tensor) | ~torch.isfinite(above) | ~is_up, below, above)

    def _below(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the nearest lower numbers of fewer bits; what is not finite is left alone."""
        if tensor.dtype not in _WIDE:
            return tensor
        if tensor.is_complex():
            return torch.view_as_complex(self._below(torch.view_as_real(tensor).contiguous()))
        parts = torch.frexp(tensor)
        scale = 2.0**self._bits
        return torch.ldexp(torch.floor(parts.mantissa * scale) / scale, parts.exponent)


def _softmax(x: torch.Tensor, dim: int, *_: object) -> torch.Tensor:
    """Return a softmax as kernels have it that keep the logarithm of its denominator: each row sums to 1 but for that.

    Source:
        T. Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning" (2023), section 3.1.
    """
    return (x - x.logsumexp(dim, keepdim=True)).exp()


def _smaller(func: OpOverload) -> Callable[..., Any] | None:
    """Return what an operator is made of; ``None`` of one that rounds once, or that torch cannot take apart."""
    is_one = torch.Tag.pointwise in func.tags and torch.Tag.core in func.tags
    return None if is_one or func.is_view or func.overloadpacket in _WHOLE else decomposition_table.get(func)
