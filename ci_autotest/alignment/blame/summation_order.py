"""Summation order: which elements another order or formula may turn into NaN or an infinity.

A sum whose positive terms and whose negative terms both exceed the range of the dtype is NaN in one order and finite or
infinite in another. If only the positive terms exceed it, no order gives NaN. The program is run in float64, operators
taken apart where torch can do so, and each result beyond the range becomes an infinity; a sum becomes what its worst
order gives. NaN then means that a right computation may have NaN there, and an infinity that it may overflow.

Complex numbers are limited part by part, where an operator computes each part by itself. The intermediate results of
other complex operators are not known, such as those of a product of two complex tensors. The same holds for matrix
factorizations, ``cdist``, ``embedding_bag`` and ``vander``.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._decomp import decomposition_table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map_only

from ci_autotest.alignment.blame.operator_mode import OperatorMode

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from ci_autotest.alignment.blame.float64_value import Float64Question

_ATEN: Final = torch.ops.aten
#: Operators that add terms, linear in each tensor argument: ``f(|x|)`` adds up the terms' absolute values.
_SUMS: Final = frozenset({
    _ATEN.addmm, _ATEN.avg_pool1d, _ATEN.avg_pool2d, _ATEN.avg_pool3d, _ATEN.baddbmm, _ATEN.bmm, _ATEN.convolution,
    _ATEN.cumsum, _ATEN.dot, _ATEN.index_add, _ATEN.mm, _ATEN.mv, _ATEN.scatter_add, _ATEN.sum, torch.ops.prims.sum,
    _ATEN._trilinear,  # noqa: SLF001 - its only name
})  # fmt: skip
#: Operators that round nothing and add nothing: they select elements of their arguments, or make constants.
_EXACT: Final = frozenset({
    _ATEN.amax, _ATEN.amin, _ATEN.cat, _ATEN.clone, _ATEN.constant_pad_nd, _ATEN.copy_, _ATEN.diag, _ATEN.fill_,
    _ATEN.flip, _ATEN.gather, _ATEN.index, _ATEN.index_select, _ATEN.max, _ATEN.min, _ATEN.roll, _ATEN.scatter,
    _ATEN.sort, _ATEN.stack, _ATEN.topk, _ATEN.zero_, _ATEN._to_copy,  # noqa: SLF001 - its only name
    _ATEN.arange, _ATEN.empty, _ATEN.empty_like, _ATEN.full, _ATEN.full_like, _ATEN.new_empty, _ATEN.new_empty_strided,
    _ATEN.new_zeros, _ATEN.ones, _ATEN.ones_like, _ATEN.scalar_tensor, _ATEN.zeros, _ATEN.zeros_like,
})  # fmt: skip
#: Operators of complex numbers that compute each part by itself.
_BY_PARTS: Final = _EXACT | {
    _ATEN.abs, _ATEN.add, _ATEN.conj_physical, _ATEN.eq, _ATEN.isinf, _ATEN.isnan, _ATEN.ne, _ATEN.neg, _ATEN.rsub,
    _ATEN.sub, _ATEN.where,
}  # fmt: skip
#: Operators that do so if only one factor of a product, or only the dividend, is complex.
_REAL_FACTORS: Final = frozenset({_ATEN.div, _ATEN.mul})
#: Sums of one tensor, whose parts are sums of its parts.
_COMPLEX_SUMS: Final = frozenset({_ATEN.cumsum, _ATEN.sum, torch.ops.prims.sum})
_PRODUCTS: Final = frozenset({_ATEN.prod, _ATEN.cumprod})
_VARIANCES: Final = frozenset({_ATEN.var, _ATEN.std, _ATEN.var_mean, _ATEN.std_mean})


class Formulas(Enum):
    """Which formulas are considered: the reference's own in any order, or naive ones of variances and products too."""

    ITS_OWN = auto()
    ANY = auto()


class _Opaque(Exception):  # noqa: N818 - not an error: the operator is a black box here
    """An operator whose intermediate results are not known."""


def worst_results(question: Float64Question, dtype: torch.dtype, formulas: Formulas) -> torch.Tensor | None:
    """Return the elements asked about as the worst order or formula gives them; ``None`` where that is not known.

    Args:
        question: About a result of a program.
        dtype: Whose range no intermediate result may exceed.
        formulas: By which it may be computed.
    """
    try:
        # The fused attention has no smaller operators; the other one is made of products and a softmax.
        with sdpa_kernel(SDPBackend.MATH), _WorstOrder(dtype, formulas):
            return question.answer(question.wider.sources, question.wider.cotangents)
    except _Opaque:
        return None


class _WorstOrder(OperatorMode):  # type: ignore[no-untyped-call]
    def __init__(self, dtype: torch.dtype, formulas: Formulas) -> None:
        super().__init__()
        self._end = torch.finfo(dtype).max
        self._has_others = formulas is Formulas.ANY

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        if _is_by_formula(func, args, kwargs):
            raise _Opaque
        if packet in _SUMS or _is_scattered_sum(packet, args):
            return self._sum(func, args, kwargs)
        if packet in _VARIANCES:
            return self._variance(func, args, kwargs)
        if packet in _PRODUCTS:
            return self._product(func, args, kwargs)
        if torch.Tag.pointwise in func.tags or packet in _EXACT or func.is_view or func.namespace == "prims":
            return self._limited(func(*args, **kwargs))
        smaller = decomposition_table.get(func)
        if smaller is None:
            raise _Opaque
        with self:
            return smaller(*args, **kwargs)

    def _limited(self, found: Any) -> Any:
        return tree_map_only(torch.Tensor, self._in_range, found)

    def _in_range(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype is torch.complex128 and not tensor.is_conj():  # A conjugate is a view of what is limited.
            self._in_range(torch.view_as_real(tensor))
        if tensor.dtype is not torch.float64:
            return tensor
        is_beyond = tensor.abs() > self._end
        # In place, so that a result that is a view or an argument stays one.
        return tensor.copy_(torch.where(is_beyond, tensor.sign() * torch.inf, tensor)) if is_beyond.any() else tensor

    def _sum(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = func(*args, **kwargs)
        if found.is_complex():
            return self._complex_sum(func, args, kwargs)
        if found.dtype is not torch.float64:
            return self._limited(found)
        # The sum of absolute values plus the sum is twice that of the positive terms.
        args, kwargs = tree_map_only(torch.Tensor, torch.abs, (args, kwargs))
        total = func(*args, **kwargs)
        is_up = (total + found > 2 * self._end) | (found == torch.inf)
        is_down = (total - found > 2 * self._end) | (found == -torch.inf)
        worst = torch.where(is_up, torch.inf, torch.where(is_down, -torch.inf, found))
        return torch.where(is_up & is_down, torch.nan, worst)

    def _complex_sum(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        if not args[0].is_complex():
            raise _Opaque
        kwargs = {key: value for key, value in kwargs.items() if not isinstance(value, torch.dtype)}
        return torch.complex(*(self._sum(func, (part, *args[1:]), kwargs) for part in (args[0].real, args[0].imag)))

    def _product(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = func(*args, **kwargs)
        # All factors above 1 first gives the largest partial product, and all below 1 the smallest.
        large = func(args[0].abs().clamp_min(1.0), *args[1:], **kwargs)
        small = func(args[0].abs().clamp_max(1.0), *args[1:], **kwargs)
        may_be_nan = self._has_others & (large > self._end) & (small * self._end < 1)
        return torch.where(may_be_nan, torch.nan, self._limited(found))

    def _variance(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return a variance that is NaN where the mean square and the squared mean both overflow."""
        found = func(*args, **kwargs)
        single = found[0] if isinstance(found, tuple) else found
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        count = args[0].numel() / max(single.numel(), 1)
        total = args[0].sum(dim, keepdim=single.dim() == args[0].dim())
        squares = args[0].square().sum(dim, keepdim=single.dim() == args[0].dim())
        is_lost = (squares > self._end) & (total.square() > self._end)
        if not self._has_others:
            is_lost &= squares - total.square() / count > self._end * count
        worst = torch.where(is_lost, torch.nan, self._limited(single))
        return (worst, self._limited(found[1])) if isinstance(found, tuple) else worst


def _is_scattered_sum(packet: object, args: tuple[Any, ...]) -> bool:
    return packet is _ATEN.scatter_reduce and args[4] == "sum"


def _is_by_formula(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator of complex numbers mixes their parts, so that its result depends on the formula."""
    is_complex = [_is_complex(leaf) for leaf in tree_leaves((args, kwargs))]
    packet = func.overloadpacket
    if not any(is_complex) or func.is_view or packet in _COMPLEX_SUMS:
        return False
    if packet in _REAL_FACTORS:
        return sum(is_complex) > 1 or (packet is _ATEN.div and not is_complex[0])
    is_taken_apart = func in decomposition_table and packet not in _SUMS | _PRODUCTS | _VARIANCES
    return packet not in _BY_PARTS and (torch.Tag.pointwise in func.tags or not is_taken_apart)


def _is_complex(leaf: object) -> bool:
    return isinstance(leaf, complex) or (isinstance(leaf, torch.Tensor) and leaf.is_complex())
