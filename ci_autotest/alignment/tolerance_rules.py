"""Tolerance rules: the only place that decides which tolerance applies to an operator and dtype.

The test's own tolerance wins over the configuration's first matching row, which wins over the
defaults per dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import torch

from ci_autotest.backends.nest import tensors_in
from ci_autotest.backends.operators.identity import matches, step_operator
from ci_autotest.program.edit import follows_from
from ci_autotest.program.ir import EXPECT, step_refs
from ci_autotest.program.written_values import written_values
from ci_autotest.values.dtypes import ROUNDING
from ci_autotest.values.tolerance import ANY, Metric, Scale, Strictness, Tolerance, tolerance_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ci_autotest.config import ToleranceRule
    from ci_autotest.program.ir import Step


class Declared(Protocol):
    """The part of a test's declaration that affects comparison; ``record`` has the whole declaration."""

    @property
    def rtol(self) -> float | None:
        """Ratio; ``None`` for the default per dtype."""

    @property
    def atol(self) -> float | None:
        """In the unit of the elements; ``None`` for the default per dtype."""

    @property
    def check_dtype(self) -> bool:
        """Whether another dtype is a misalignment."""

    @property
    def check_allclose(self) -> bool:
        """Whether elements are compared."""

    @property
    def check_graph(self) -> bool:
        """Whether the body is run as one compiled graph too."""


@dataclass(frozen=True, slots=True)
class ToleranceRow:
    """A row of the configuration: the tolerance of operators that match a pattern.

    Args:
        operator: Name in any spelling, with ``*``.
        rtol: Ratio, with ``atol``; ``None`` if the row has a metric or a factor instead.
        atol: In the unit of the elements.
        dtype: Name without framework; ``None`` for any.
        candidate: Name; ``None`` for any.
        metric: What is held against ``limit``.
        limit: Of another metric than ``elements``.
        share: Part of the elements that may be off.
        factor: For strictness ``measured``; ``None`` for the default.
        scale: What the bounds are multiplied by; ``None`` for 1.
    """

    operator: str
    rtol: float | None
    atol: float | None
    dtype: str | None = None
    candidate: str | None = None
    metric: Metric = "elements"
    limit: float = 0.0
    share: float = 0.0
    factor: float | None = None
    scale: Scale | None = None

    def scaled(self, reduced: int) -> ToleranceRow:
        """Return the row for calls that sum ``reduced`` elements for one element of their result."""
        if self.scale is None or self.rtol is None or self.atol is None:
            return self
        times = _SCALES[self.scale](reduced)
        return replace(self, rtol=self.rtol * times, atol=self.atol * times, scale=None)

    @property
    def is_whole(self) -> bool:
        """Whether the row holds as it is for all of a test: its limit cannot be compared with other rows'."""
        return self.metric != "elements" or bool(self.share)


class Called(NamedTuple):
    """An operator that a program calls.

    Attributes:
        operator: Its canonical name.
        reduced: Greatest number of elements that a call sums for one element of its result, as far as rows ask for it.
    """

    operator: str
    reduced: int = 1


@dataclass(frozen=True, slots=True)
class Rules:
    """How the values of a test are compared on one candidate.

    Args:
        rtol: The test's own ratio; ``None`` for the default per dtype.
        atol: The test's own, in the unit of the elements; ``None`` likewise.
        check_dtype: Whether another dtype is a misalignment.
        strictness: How the bounds are read.
        rows: The configuration's rows for this candidate, first match first.
        check_allclose: Whether elements are compared.
        check_graph: Whether the body is run as one compiled graph too.
        set_aside: Operators and kinds of differences that are accepted and passed over.
        is_tolerant: Whether -0.0 and 0.0 are aligned.
    """

    rtol: float | None = None
    atol: float | None = None
    check_dtype: bool = True
    strictness: Strictness = "tolerance"
    rows: tuple[ToleranceRow, ...] = ()
    check_allclose: bool = True
    check_graph: bool = False
    set_aside: frozenset[tuple[str, str]] = frozenset()
    is_tolerant: bool = field(init=False, default=True)
    _cache: dict[tuple[tuple[Called, ...], str], Tolerance] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Compute ``is_tolerant`` once, because the fast path reads it for every value."""
        object.__setattr__(self, "is_tolerant", self.strictness in {"tolerance", "measured"})

    def setting_aside(self, identity: tuple[str, str]) -> Rules:
        """Return the rules with one more operator and kind whose difference is passed over."""
        return replace(self, set_aside=self.set_aside | {identity})

    def sets_aside(self, operator: str, kind: str | None) -> bool:
        """Whether a difference is accepted; an accepted shape covers the gradient that goes back through it."""
        kinds = (kind, "shape") if kind == "gradient" else (kind,)
        return bool(self.set_aside) and any((operator, one) in self.set_aside for one in kinds)

    @property
    def has_own(self) -> bool:
        """Whether the test gives a tolerance of its own."""
        return self.rtol is not None or self.atol is not None

    def operators(
        self, steps: Sequence[Step], values: Sequence[Any] | None = None, of: int | None = None
    ) -> tuple[Called, ...]:
        """Return the operators whose rows matter for a program, or for one value of it; empty if no row can apply.

        Args:
            steps: Of the program.
            values: The reference's, by step, for rows with a ``scale``. Without them such a row allows no more than for
                one element, which is what a fast path may be sure of.
            of: Index of the value, to which the error of a call matters only if the value follows from it.
        """
        # The test's own tolerance wins over every row.
        if not self.rows or self.has_own:
            return ()
        # After a write, a value may follow from calls that it does not refer to.
        is_one = of is not None and not any(written_values(step, steps) for step in steps)
        behind = follows_from(steps, of) if is_one and of is not None else range(len(steps))
        called = [step for i, step in enumerate(steps) if step.is_call and step.target != EXPECT and i in behind]
        if values is None or not any(row.scale for row in self.rows):
            return tuple(sorted({Called(step_operator(step, steps)) for step in called}))
        sizes: dict[str, int] = {}
        for index, step in enumerate(steps):
            if step in called and index < len(values):
                operator = step_operator(step, steps)
                sizes[operator] = max(sizes.get(operator, 1), reduced_size(step, steps, values, index))
        return tuple(sorted(Called(operator, size) for operator, size in sizes.items()))

    def tolerance(self, operators: tuple[Called, ...], dtype: str) -> Tolerance:
        """Return the loosest tolerance of some operators for elements of ``dtype``.

        The loosest, because all later operators pass on the error that one operator may make. A row with a metric of
        the whole tensor cannot be compared with others: the first one that matches any of the operators applies.
        """
        if not self.check_allclose:
            return ANY
        key = (operators, dtype)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._decide(operators, dtype)
        return found

    def _decide(self, operators: tuple[Called, ...], dtype: str) -> Tolerance:
        default = self._default(dtype)
        found = [(self._row(called.operator, dtype), called.reduced) for called in operators]
        rows = [row.scaled(size) for row, size in found if row is not None]
        whole = [row.scaled(size) for own in self.rows if own.is_whole for row, size in found if row is own]
        # A strict run compares bits, whatever metric a row gives.
        if whole and not default.is_strict:
            return _of_row(whole[0], default)
        # A single operator's row also applies if it is stricter than the default, which the loosest of both would hide.
        if len(operators) == 1 and rows:
            return _of_row(rows[0], default)
        loosest = default
        for row in rows:
            loosest = _loosest(loosest, _of_row(row, default))
        return loosest

    def _default(self, dtype: str) -> Tolerance:
        """Return the tolerance without any row; only dtypes that float64 is wider than can be measured."""
        found = tolerance_for(dtype, self.rtol, self.atol, self.strictness)
        is_given = self.has_own or dtype not in ROUNDING
        return replace(found, strictness="tolerance") if found.strictness == "measured" and is_given else found

    def _row(self, operator: str, dtype: str) -> ToleranceRow | None:
        for row in self.rows:
            if matches(row.operator, operator) and row.dtype in {None, dtype}:
                return row
        return None


def expected_tolerance(step: Step, rules: Rules, steps: Sequence[Step], dtype: str) -> Tolerance:
    """Return the tolerance of an expectation: its own, else the test's; nothing is measured against it."""
    rtol, atol = (*step.args[2:4], None, None)[:2]
    if isinstance(rtol, float) and isinstance(atol, float):
        return Tolerance(rtol, atol)
    found = rules.tolerance(rules.operators(steps), dtype)
    return replace(found, strictness="tolerance") if found.strictness == "measured" else found


def _of_row(row: ToleranceRow, default: Tolerance) -> Tolerance:
    """Return the tolerance of a row: its numbers take the place of a measure."""
    if row.is_whole and not default.is_strict:
        return Tolerance(row.rtol or 0.0, row.atol or 0.0, "tolerance", row.metric, row.limit, row.share)
    if row.rtol is None or row.atol is None:
        return default if row.factor is None else replace(default, factor=row.factor)
    strictness = default.strictness if default.is_strict else "tolerance"
    return Tolerance(row.rtol, row.atol, strictness)


def _loosest(one: Tolerance, other: Tolerance) -> Tolerance:
    """Return a tolerance that is nowhere stricter than either; a measure holds only where no row gives numbers."""
    strictness = one.strictness if one.strictness == other.strictness else "tolerance"
    factor = max(one.factor, other.factor)
    return Tolerance(max(one.rtol, other.rtol), max(one.atol, other.atol), strictness, factor=factor)


def rules_for(
    tolerances: Iterable[ToleranceRule], strictness: Strictness, candidate: str, declared: Declared | None
) -> Rules:
    """Return how a test's values are compared on a candidate.

    Args:
        tolerances: The configuration's rows, in order.
        strictness: How bounds are read.
        candidate: Name; rows of other candidates are left out.
        declared: What the test declares; ``None`` for a program without a test.
    """
    rows = tuple(
        ToleranceRow(
            row.operator, row.rtol, row.atol, row.dtype, row.candidate, row.metric, row.limit or 0.0, row.share,
            row.factor, row.scale,
        )
        for row in tolerances
        if row.candidate in {None, candidate}
    )  # fmt: skip
    if declared is None:
        return Rules(strictness=strictness, rows=rows)
    return Rules(
        declared.rtol, declared.atol, declared.check_dtype, strictness, rows, declared.check_allclose,
        declared.check_graph,
    )  # fmt: skip


# How many elements an operator sums for one element of its result: the K of a tolerance with ``scale: sqrt(K)``.
#
# A sum of K terms in another order or precision is off by up to K roundings, and by about the root of K if they are
# random. Source: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, chapters 3 and 4.


#: Products, which sum over the last dimension of their first matrix; that is argument ``position``.
_PRODUCTS: Final[Mapping[str, int]] = {
    "torch.matmul": 0, "torch.mm": 0, "torch.bmm": 0, "torch.mv": 0, "torch.dot": 0, "torch.vdot": 0, "torch.inner": 0,
    "torch.nn.functional.linear": 0, "torch.nn.functional.bilinear": 0, "torch.addmm": 1, "torch.addmv": 1,
    "torch.baddbmm": 1, "torch.addbmm": 1,
}  # fmt: skip
#: Operators that sum along one dimension and keep it.
_ALONG: Final = ("softmax", "log_softmax", "softmin", "logcumsumexp", "cumsum", "cumprod", "normalize", "glu")
_NORMALISED: Final = ("layer_norm", "rms_norm")
_CONVOLUTION: Final = "torch.nn.functional.conv"


def reduced_size(step: Step, steps: Sequence[Step], values: Sequence[Any], index: int) -> int:
    """Return the number of elements that one element of a step's result is computed from, along reduced dimensions.

    Args:
        step: A call.
        steps: All steps of the program.
        values: The reference's values by step.
        index: Of the step.
    """
    given = [values[ref.index] for ref in step_refs(step)]
    modules = [value for value in given if isinstance(value, torch.nn.Module)]
    weights = [weight for module in modules for weight in module.parameters(recurse=False)]
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    if not tensors:
        return 1
    operator, (first, *_) = step_operator(step, steps), tensors
    name = operator.rpartition(".")[2]
    if operator in _PRODUCTS:
        matrix = tensors[min(_PRODUCTS[operator], len(tensors) - 1)]
        return max(1, matrix.shape[-1] if matrix.dim() else 1)
    if operator.startswith(_CONVOLUTION):
        return _of_weight([*tensors[1:], *weights], is_transposed="transpose" in name)
    if name == "scaled_dot_product_attention":
        return max(1, first.shape[-1], tensors[1].shape[-2])
    if name in _ALONG:
        return _of_dimension(step, first)
    if name in _NORMALISED:
        return _of_shape(step, first, weights)
    smallest = min((result.numel() for result in tensors_in(values[index])), default=0)
    return max(1, first.numel() // smallest) if smallest else 1


def _of_weight(weights: Sequence[torch.Tensor], *, is_transposed: bool) -> int:
    """Return the elements of a convolution's kernel that meet in one element of the result."""
    kernel = next((weight for weight in weights if weight.dim() > 2), None)  # noqa: PLR2004 - channels, channels, space
    if kernel is None or not kernel.numel():
        return 1
    return kernel.numel() // kernel.shape[1 if is_transposed else 0]


def _of_dimension(step: Step, tensor: torch.Tensor) -> int:
    dim = dict(step.kwargs).get("dim", next((arg for arg in step.args[1:] if isinstance(arg, int)), -1))
    if not tensor.dim() or not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        return max(1, tensor.numel())
    return max(1, tensor.shape[dim])


def _of_shape(step: Step, tensor: torch.Tensor, weights: Sequence[torch.Tensor]) -> int:
    shape = dict(step.kwargs).get("normalized_shape", step.args[1] if len(step.args) > 1 else None)
    items = getattr(shape, "items", shape)
    if isinstance(items, tuple) and all(isinstance(size, int) for size in items):
        return max(1, math.prod(size for size in items if isinstance(size, int)))
    if weights:
        return max(1, weights[0].numel())
    return max(1, tensor.shape[-1] if tensor.dim() else 1)


#: What a row's ``scale`` multiplies its bounds by.
_SCALES: Final[Mapping[str, Callable[[int], float]]] = {
    "K": float, "sqrt(K)": math.sqrt, "log2(K)": lambda count: max(1.0, math.log2(count)),
}  # fmt: skip
