"""Overflow: elements that are not finite on one side or both, and when the candidate is not to blame for them.

An exact result beyond the range of its dtype is rounded to an infinity. A formula that reaches it by ``inf - inf``
gives NaN instead, and nobody could use either. The same holds if the reference itself overflows on the way to a result
that is in range, or if its result has no correct digit because the inputs' last place decides it. In each of these
cases the candidate is excused only if another order or formula can give what it has (``worst_results``): terms of one
sign never give NaN. NaN made from infinite inputs is not excused, nor is any NaN of an elementwise operator.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._decomp import decomposition_table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map_only

from ci_autotest.alignment.blame.conditioning import moved_by_inputs
from ci_autotest.alignment.blame.float64_runs import distance
from ci_autotest.alignment.blame.random_rounding import OperatorMode
from ci_autotest.alignment.elements import has_any, wide
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.ir import output_refs
from ci_autotest.values.dtypes import COMPLEX, FLOAT8, FLOATING, HALF

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch._ops import OpOverload

    from ci_autotest.alignment.blame.float64_runs import Float64Question
    from ci_autotest.alignment.blame.rounding import Errors


_BEYOND: Final = (
    "the exact result is beyond the range of the dtype, or the reference is not finite: neither is a number"
)
#: Dtypes whose sums are accumulated in the dtype itself.
_ACCUMULATED: Final = frozenset(getattr(torch, name) for name in (FLOATING | COMPLEX) - HALF - FLOAT8)
_OF_NAN: Final = "the gradient is of outputs that are NaN: which of its elements are finite depends on the formula"


def in_range(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return exact values, with those beyond the range of a dtype rounded to infinities."""
    if truth.is_complex():
        parts = torch.finfo(dtype).dtype if dtype.is_complex else str(dtype)
        within = in_range(torch.view_as_real(truth), getattr(torch, parts.removeprefix("torch.")))
        return torch.view_as_complex(within)
    # The conversion rounds what is beyond the range to an infinity, as IEEE 754 says.
    stored = truth.to(dtype).to(truth.dtype)
    return torch.where(torch.isinf(stored), stored, truth)


def distance_in_range(side: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return how far a side is from the exact result, where an infinity stands for everything beyond the range.

    At the end of the range, one side may be rounded up to infinity while the other is not, although they differ by one
    unit in the last place.

    Args:
        side: In float64, any shape.
        exact: The same shape.
        dtype: Of the side as it was.
    """
    found = distance(side, in_range(exact, dtype))
    if side.is_complex() or exact.is_complex() or not dtype.is_floating_point:
        return found
    end = torch.finfo(dtype).max
    is_up = torch.isinf(side) & torch.isfinite(exact) & (side.sign() == exact.sign())
    found = torch.where(is_up, (end - exact.abs()).clamp_min(0.0), found)
    is_down = torch.isfinite(side) & torch.isfinite(exact) & (exact.abs() > end)
    return torch.where(is_down, (side - exact).abs(), found)


def excused(
    question: Float64Question, candidate: torch.Tensor, reference: torch.Tensor, errors: Errors
) -> torch.Tensor:
    """Return the misaligned elements for which the candidate is not to blame, in the tensors' shape.

    Args:
        question: About all elements.
        candidate: Its value.
        reference: Of the same shape.
        errors: Of both sides; ``errors.truth`` is infinite beyond the range.
    """
    is_finite = [torch.isfinite(wide(side)) for side in (candidate, reference)]
    lost = errors.bad & ~is_finite[0]
    if not has_any(lost):
        return lost
    exact = question.answer(question.wider.sources, question.wider.cotangents)
    if exact is None or exact.shape != lost.shape:
        return lost & False
    found = lost & _may_overflow(question, candidate, exact, is_finite[1], errors)
    found |= lost & _without_a_digit(question, errors, lost & ~found)
    if question.key[0] != "gradient" or not has_any(lost & ~found):
        return found
    from_nan = _from_nan(question)
    return found if from_nan is None or not has_any(lost & from_nan) else found | (errors.bad & from_nan)


def _may_overflow(
    question: Float64Question, candidate: torch.Tensor, exact: torch.Tensor, is_finite: torch.Tensor, errors: Errors
) -> torch.Tensor:
    """Return where a right computation may have what the candidate has, because something exceeds the range.

    Args:
        question: About all elements.
        candidate: Its value.
        exact: In float64, not limited to the range of the dtype.
        is_finite: Where the reference is finite.
        errors: Of both sides.
    """
    value = wide(candidate)
    is_within = torch.isfinite(errors.truth)
    is_beyond = torch.isfinite(exact) & ~is_within & (errors.candidate > errors.allowed)
    is_lost = is_beyond | (is_within & ~is_finite)
    worst = worst_results(question, errors.dtype, Formulas.ANY)
    # The intermediate results of a matrix factorization, for example, are not known: it is excused.
    found = is_lost if worst is None else is_lost & _is_reached(worst, value)
    # A reference that is finite may owe that to its order. Half precision is accumulated in single, so there it is not.
    is_alone = errors.bad & is_within & is_finite & ~torch.isfinite(value)
    if errors.dtype in _ACCUMULATED and has_any(is_alone):
        worst = worst_results(question, errors.dtype, Formulas.ITS_OWN)
        return found if worst is None else found | (is_alone & _is_reached(worst, value))
    return found


def _is_reached(worst: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return where an order has NaN, which another has an infinity for, or the value itself."""
    if worst.is_complex():
        parts = [torch.view_as_real(side.resolve_conj()) for side in (worst, value)]
        return torch.isnan(worst) | (_is_reached(*parts) | torch.isfinite(parts[1])).all(-1)
    return torch.isnan(worst) | (worst == value)


def _without_a_digit(question: Float64Question, errors: Errors, asked: torch.Tensor) -> torch.Tensor:
    """Return where the reference has no correct digit and cannot have one, as for the inverse of a singular matrix."""
    half = torch.maximum(errors.truth.abs() / 2, errors.allowed)
    is_wrong = torch.isfinite(errors.truth) & (errors.reference > half)
    moved = moved_by_inputs(question, errors.truth) if has_any(asked & is_wrong) else None
    return is_wrong & (moved > half) if moved is not None else is_wrong & False


def sentence(question: Float64Question, errors: Errors) -> str:
    """Return why no side is to blame when all misaligned elements are excused."""
    is_gradient = question.key[0] == "gradient" and not has_any(errors.bad & torch.isfinite(errors.truth))
    return _OF_NAN if is_gradient and has_any(errors.bad & torch.isnan(errors.truth)) else _BEYOND


def is_of_nothing(cotangents: Mapping[int, Any]) -> bool:
    """Whether all outputs are empty: their gradient is 0, even if a formula divides by the number of elements."""
    return bool(cotangents) and not any(each.numel() for each in cotangents.values())


def _from_nan(question: Float64Question) -> torch.Tensor | None:
    """Return which elements of a gradient depend on outputs that are NaN in float64; ``None`` if no output is NaN.

    The inputs are replaced by ordinary numbers, and only the NaN outputs get a weight.
    """
    wider = question.wider
    trace = (question.reference or TorchBackend()).run(wider.program, wider.sources)
    refs = output_refs(wider.program)
    if trace.failure is not None:
        return None
    weights = {
        position: torch.isnan(trace.values[refs[position].index]).to(weight.dtype)
        for position, weight in wider.cotangents.items()
    }
    if not any(has_any(weight != 0) for weight in weights.values()):
        return None
    generator = torch.Generator().manual_seed(0)
    found = question.answer({key: _ordinary(value, generator) for key, value in wider.sources.items()}, weights)
    return None if found is None else found != 0


def _ordinary(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not (value.is_floating_point() or value.is_complex()):
        return value
    # Positive and not near 0, so that logarithms, roots and quotients are defined.
    return torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.dtype) + 0.25


# Summation order: which elements another order or formula may turn into NaN or an infinity.
#
# A sum whose positive terms and whose negative terms both exceed the range of the dtype is NaN in one order and finite
# or infinite in another. If only the positive terms exceed it, no order gives NaN. The program is run in float64,
# operators taken apart where torch can do so, and each result beyond the range becomes an infinity; a sum becomes what
# its worst order gives. NaN then means that a right computation may have NaN there, and an infinity that it may
# overflow.
#
# Complex numbers are limited part by part, where an operator computes each part by itself. The intermediate results of
# other complex operators are not known, such as those of a product of two complex tensors. The same holds for matrix
# factorizations, ``cdist``, ``embedding_bag`` and ``vander``.


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
