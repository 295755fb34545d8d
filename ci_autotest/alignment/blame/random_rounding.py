"""Random rounding: how far a correct computation in a narrow dtype may be off, including rounding between steps.

The program runs in float64 with its operators decomposed as far as torch can. Each result that does not fit a narrower
significand is rounded up or down at random. The spread of the results is the error that any computation of this kind
may have. A result that is exact in the dtype is left alone, so that nothing is excused where nothing is rounded. A sum
of one term is exact, too, for example with a softmax that is 1 in one place and 0 elsewhere. Another formula of the
same result may round there, because its parts cancel only up to rounding: it is measured separately (``Formula``).

Source:
    J. Vignes, "A stochastic arithmetic for reliable scientific computation", Mathematics and Computers in Simulation 35
    (1993): random rounding as a measure of the error of a computation. D. S. Parker, "Monte Carlo arithmetic" (1997),
    for moving the terms of a sum, which are rounded on the way.
"""

from __future__ import annotations

import sys
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from ci_autotest.backends.first_use import hide_references
from ci_autotest.backends.nest import tensors_in
from ci_autotest.values.dtypes import WIDE

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._ops import OpOverload


# What the modes of the oracle share: torch calls them for each operator, and Dynamo stays out of them.


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that Dynamo does not trace, and that does not import Dynamo for it.

    By default torch wraps ``__torch_dispatch__`` so that its first call imports Dynamo, which takes a second in each
    process that judges a difference. Only where something was compiled before, there is something to keep out.
    """

    is_wrapped: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        mode = type(self)
        if "torch._dynamo" not in sys.modules:
            hide_references()
        elif not mode.is_wrapped:
            mode.__torch_dispatch__ = torch.compiler.disable(mode.__torch_dispatch__)  # type: ignore[method-assign, no-untyped-call]
            mode.is_wrapped = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch itself wraps the method when the class is made."""
        return False


#: Dtypes whose results are rounded.
_WIDE: Final = frozenset(getattr(torch, name) for name in WIDE.values())
#: Operators that round at most once, or as a sum. Torch can decompose them, but that only costs time: a cumulative sum
#: of n terms becomes n sums of n terms.
_WHOLE: Final = frozenset({
    torch.ops.aten.amax, torch.ops.aten.amin, torch.ops.aten.cat, torch.ops.aten.conj_physical, torch.ops.aten.cumprod,
    torch.ops.aten.cumsum, torch.ops.aten.rsub, torch.ops.aten.stack, torch.ops.aten.sum,
})  # fmt: skip
_SOFTMAX: Final = frozenset({torch.ops.aten.softmax, torch.ops.aten._softmax})  # noqa: SLF001 - its only name
#: Sums of earlier results, whose terms another order or formula rounds differently.
_SUMS: Final = frozenset({
    torch.ops.aten.addmm, torch.ops.aten.baddbmm, torch.ops.aten.bmm, torch.ops.aten.cumsum, torch.ops.aten.dot,
    torch.ops.aten.mm, torch.ops.aten.mv, torch.ops.aten.sum,
})  # fmt: skip


class Formula(Enum):
    """The computation that is rounded: the reference's own, or another one with the same exact result.

    Attributes:
        IN_ANY_ORDER: The terms of a sum are rounded where the sum itself is exact.
        OF_KEPT_DENOMINATORS: In addition, a softmax is ``exp(x - log(denominator))``.
    """

    ITS_OWN = auto()
    IN_ANY_ORDER = auto()
    OF_KEPT_DENOMINATORS = auto()


class RandomRounding(OperatorMode):  # type: ignore[no-untyped-call]
    """Round the float64 results of operators to fewer bits, up or down at random.

    Args:
        bits: Bits of the significand, 24 for single precision.
        seed: Seed of the random choices.
        formula: The computation that is rounded.
    """

    def __init__(self, bits: int, seed: int, formula: Formula = Formula.ITS_OWN) -> None:
        super().__init__()
        self._bits, self._formula = bits, formula
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator and round its result."""
        kwargs = kwargs or {}
        is_kept = self._formula is Formula.OF_KEPT_DENOMINATORS and func.overloadpacket in _SOFTMAX
        smaller = _softmax if is_kept else _smaller(func)
        if smaller is not None:
            with self:
                return smaller(*args, **kwargs)
        run = getattr(func, "impl_aten", func)  # A primitive of torch's imports Dynamo where it is called itself.
        found = run(*args, **kwargs)
        if func._schema.is_mutable:  # noqa: SLF001 - torch says it nowhere else
            return tree_map_only(torch.Tensor, lambda tensor: tensor.copy_(self._rounded(tensor)), found)
        is_asked = self._formula is not Formula.ITS_OWN and func.overloadpacket in _SUMS
        if func.is_view or (self._is_exact(found) and not is_asked):
            return found
        if not {torch.Tag.pointwise, torch.Tag.nondeterministic_seeded} & set(func.tags):
            args, kwargs = tree_map_only(torch.Tensor, self._moved, (args, kwargs))
            found = run(*args, **kwargs)
        return tree_map_only(torch.Tensor, self._rounded, found)

    def _is_exact(self, found: object) -> bool:
        """Whether the narrower significand holds the whole result, for example of a copy or a sum of zeros."""
        return all(bool((self._below(each) == each).all()) for each in tensors_in(found))

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the terms of a sum, each rounded at random."""
        if tensor.dtype not in _WIDE:
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=self._generator, dtype=torch.float64) * 2 - 1
        return tensor * (1 + signs * 2.0**-self._bits)

    def _rounded(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return each element rounded to one of its two neighbours of fewer bits; exact elements stay."""
        if tensor.dtype not in _WIDE:
            return tensor
        if tensor.is_complex():
            return torch.view_as_complex(self._rounded(torch.view_as_real(tensor)))
        below = self._below(tensor)
        is_up = torch.randint(0, 2, tensor.shape, generator=self._generator, dtype=torch.bool)
        above = below + torch.ldexp(torch.ones_like(below), torch.frexp(tensor).exponent - self._bits)
        return torch.where((below == tensor) | ~torch.isfinite(above) | ~is_up, below, above)

    def _below(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the nearest lower numbers of fewer bits; elements that are not finite stay."""
        if tensor.dtype not in _WIDE:
            return tensor
        if tensor.is_complex():
            return torch.view_as_complex(self._below(torch.view_as_real(tensor).contiguous()))
        parts = torch.frexp(tensor)
        scale = 2.0**self._bits
        return torch.ldexp(torch.floor(parts.mantissa * scale) / scale, parts.exponent)


def _softmax(x: torch.Tensor, dim: int, *_: object) -> torch.Tensor:
    """Return a softmax as kernels compute it that keep the logarithm of its denominator: rows sum to 1 up to rounding.

    Source:
        T. Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning" (2023), section 3.1.
    """
    return (x - x.logsumexp(dim, keepdim=True)).exp()


def _smaller(func: OpOverload) -> Callable[..., Any] | None:
    """Return the decomposition of an operator; ``None`` if it rounds once or torch has no decomposition."""
    is_one = torch.Tag.pointwise in func.tags and torch.Tag.core in func.tags
    return None if is_one or func.is_view or func.overloadpacket in _WHOLE else decomposition_table.get(func)
