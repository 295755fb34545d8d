"""The only table of operators whose outputs are not unique, with what is defined about each, and the checks.

Eigenvectors, the order of ties, uninitialized memory and random numbers may differ without a fault, so they are
compared by what the documentation promises. A row is checked only if the elements differ, and counts only if the
reference itself keeps the promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.alignment.elements import equal_or_nan, wide
from ci_autotest.alignment.properties import matrices
from ci_autotest.alignment.properties.call import is_drawn, is_unsorted, is_unstable, nothing
from ci_autotest.backends.operators.identity import public_operator
from ci_autotest.backends.operators.user_operators import ties_of
from ci_autotest.program.random_calls import RANDOM, is_random
from ci_autotest.program.targets import DISPATCHER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.alignment.properties.call import SideCall


# Properties of indices and sets: compare what they select.


def _dim(call: SideCall) -> int:
    positions = {"topk": 2, "kthvalue": 2}
    found = call.argument(positions.get(call.name, 1), "dim", 0 if call.name == "msort" else -1)
    return -1 if found is None or isinstance(found, bool) else int(found)


_OF_REFERENCE: Final = "the indices select other values than the reference's"
_OF_RESULT: Final = "the indices do not select the values returned with them"


def _selects(call: SideCall) -> str:
    """Check that the indices select the same values from the input as the reference's."""
    position = len(call.outputs) - 1
    found, expected = call.output(position), call.reference[position]
    if found is None or expected is None or not found.numel():
        return ""
    source = call.input.detach()
    # Without a dimension the index counts in the flattened input.
    if call.name in {"argmax", "argmin"} and call.argument(1, "dim", None) is None:
        source = source.reshape(-1)
    dim = 0 if source.dim() <= 1 else _dim(call)
    source = source.reshape(-1) if source.dim() == 0 else source
    return _other_values(source, dim, found, _gathered(source, dim, expected))


def _other_values(
    source: torch.Tensor, dim: int, index: torch.Tensor, values: torch.Tensor, broken: str = _OF_REFERENCE
) -> str:
    """Return what is wrong with indices that are to select values; NaN is selected by any index of a NaN."""
    if int(index.min()) < 0 or int(index.max()) >= source.shape[dim]:
        return f"an index is out of range: {source.shape[dim]} elements"
    return "" if bool(equal_or_nan(_gathered(source, dim, index), values).all()) else broken


def _gathered(source: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    if index.dim() == source.dim():
        return source.gather(dim, index.long())
    # Without `keepdim` the index lacks the dimension.
    return source.gather(dim, index.long().unsqueeze(dim)).squeeze(dim)


def _selects_distinct(call: SideCall) -> str:
    """Check ``_selects``, and that no element is selected twice."""
    problem = _selects(call)
    found = call.output(len(call.outputs) - 1)
    if problem or found is None or found.dim() == 0 or not found.numel():
        return problem
    ordered = found.sort(_dim(call)).values
    steps = ordered.diff(dim=_dim(call))
    return "an element is selected twice" if bool((steps == 0).any()) else ""


def _selects_ties(position: int, call: SideCall) -> str:
    """Check that an output's indices select, along the last dimension, the elements that the reference's do."""
    found, expected, source = call.output(position), call.reference[position], call.input.detach()
    if found is None or expected is None or not found.numel() or found.shape != expected.shape:
        return ""
    if found.is_floating_point() or found.is_complex() or source.dim() - found.dim() not in {0, 1}:
        return f"output {position} has no indices into the last dimension of the first argument, which `ties` says"
    problem = _other_values(source, -1, found, _gathered(source, -1, expected))
    if problem:
        return problem
    is_list = found.dim() == source.dim()
    twice = is_list and bool((found.sort(-1).values.diff(dim=-1) == 0).any())
    was_twice = is_list and bool((expected.sort(-1).values.diff(dim=-1) == 0).any())
    return "an element is selected twice" if twice and not was_twice else ""


def _selects_value(call: SideCall) -> str:
    """Check that the indices select the values that are returned with them."""
    values, found = call.output(0), call.output(1)
    if values is None or found is None or not found.numel() or call.input.dim() == 0:
        return ""
    return _other_values(call.input.detach(), _dim(call), found, values, _OF_RESULT)


def _most_frequent(call: SideCall) -> str:
    """Check that the values occur as often as the reference's, and that the indices select them."""
    values, expected = call.output(0), call.reference[0]
    source = call.input.detach()
    if values is None or expected is None or source.dim() == 0 or values.shape != expected.shape or not values.numel():
        return ""
    dim = _dim(call)
    kept = [one if one.dim() == source.dim() else one.unsqueeze(dim) for one in (values.detach(), expected.detach())]
    counts = [(source == one).sum(dim) for one in kept]
    same = (counts[0] == counts[1]) & (counts[1] > 0)
    if not bool((same | (kept[0].isnan() & kept[1].isnan()).squeeze(dim)).all()):
        return "a value is not one of the most frequent"
    found = call.output(1)
    if found is None:
        return ""
    return _other_values(source, dim, found, values, _OF_RESULT)


def _selects_pooled(call: SideCall) -> str:
    """Check that the indices into the flattened dimensions select the values that are returned with them."""
    values, found = call.output(0), call.output(1)
    if values is None or found is None or not found.numel():
        return ""
    # `max_pool2d` has the number of dimensions before its last letter.
    spatial = int(call.name.removesuffix("_with_indices")[-2])
    source = call.input.detach().flatten(-spatial)
    index = found.long().flatten(-spatial)
    return _other_values(source, -1, index, values.flatten(-spatial), _OF_RESULT)


def _same_set(call: SideCall) -> str:
    """Check the distinct elements in any order, that the inverse restores the input, and the counts."""
    found, expected = call.output(0), call.reference[0]
    # With a dimension the elements are whole slices, which sorting would take apart.
    if found is None or expected is None or call.argument(4, "dim", None) is not None:
        return ""
    order, other = found.sort(), expected.sort()
    if found.shape != expected.shape or not torch.equal(order.values, other.values):
        return "the distinct elements differ from the reference's"
    for position in range(1, len(call.outputs)):
        extra, theirs = call.output(position), call.reference[position]
        if extra is None or theirs is None:
            continue
        if extra.shape == call.input.shape and not torch.equal(found[extra], call.input.detach()):
            return "the inverse does not restore the input"
        # The inverse has the shape of the input, and the counts have that of the distinct elements.
        is_count = extra.shape == found.shape and extra.shape != call.input.shape
        if is_count and not torch.equal(extra[order.indices], theirs[other.indices]):
            return "the counts do not match their elements"
    return ""


# Properties of random numbers: their range and support and, for dropout, the kept elements.


#: Fewest elements for which the share of zeros after dropout is checked.
_ENOUGH: Final = 64
#: Standard deviations that the share may be off.
_DEVIATIONS: Final = 6.0
#: Probability below which nothing happens by chance; six standard deviations have about the same.
_UNLIKELY: Final = 1e-9


def _kept(call: SideCall) -> str:
    """Check that each element is 0 or the input over ``1 - p``, and that about a share of ``p`` is 0."""
    found, source = call.output(0), call.input
    p = float(call.argument(1, "p", 0.5))
    if found is None or found.shape != source.shape:
        return ""
    values, inputs = wide(found), wide(source)
    scaled = inputs / (1 - p) if p < 1 else torch.zeros_like(inputs)
    eps = torch.finfo(found.dtype).eps
    is_kept = torch.isclose(values, scaled, rtol=4 * eps, atol=0.0, equal_nan=True)
    if not bool((is_kept | (values == 0)).all()):
        return "an element is neither 0 nor the input over (1 - p)"
    # A zero of the input stays zero, whether it is dropped or kept.
    live = inputs != 0
    count = int(live.sum())
    zeros = int(((values == 0) & live).sum())
    allowed = _DEVIATIONS * math.sqrt(max(count * p * (1 - p), 1.0))
    is_off = count >= _ENOUGH and abs(zeros - count * p) > allowed
    # The share of a few elements says little, but that all of them are dropped has a probability of its own.
    is_off |= 0 < count == zeros and p**count < _UNLIKELY
    return f"{zeros} of {count} elements are 0 for p = {p:g}" if is_off else ""


def _within(low: float, high: float) -> Callable[[SideCall], str]:
    def broken(call: SideCall) -> str:
        found = call.output(0)
        if found is None or not found.numel():
            return ""
        values = wide(found)
        return "" if bool(((values >= low) & (values < high)).all()) else f"an element is outside [{low:g}, {high:g})"

    return broken


def _bits(call: SideCall) -> str:
    found = call.output(0)
    return "" if found is None or bool(((found == 0) | (found == 1)).all()) else "an element is neither 0 nor 1"


def _permutation(call: SideCall) -> str:
    found = call.output(0)
    if found is None or torch.equal(found.sort().values.long(), torch.arange(found.numel())):
        return ""
    return "it is not a permutation"


def _finite(call: SideCall) -> str:
    found = call.output(0)
    return "" if found is None or bool(torch.isfinite(found).all()) else "an element is not finite"


#: Checks by operator name; other random operators define only shape and dtype.
_PROMISED: Final[Mapping[str, Callable[[SideCall], str]]] = {
    "dropout": _kept, "rand": _within(0.0, 1.0), "rand_like": _within(0.0, 1.0), "bernoulli": _bits,
    "randperm": _permutation, "randn": _finite, "randn_like": _finite,
}  # fmt: skip


class PropertyRow(NamedTuple):
    """The outputs of an operator that are not unique, and the check of what is defined.

    Attributes:
        outputs: Positions in its tuple; empty for a single tensor or for all outputs.
        broken: Returns how a side breaks the definition, ``""`` if it does not.
        source: The documentation that leaves the choice.
        applies: Whether a given call leaves the choice; ``stable=True``, for example, leaves none.
        only_compiled: Whether only compilers have this choice.
    """

    outputs: tuple[int, ...]
    broken: Callable[[SideCall], str]
    source: str
    applies: Callable[[SideCall], bool] = lambda _call: True
    only_compiled: bool = False


_DOCS: Final = "https://docs.pytorch.org/docs/2.13/generated/"
_LINALG: Final = f"{_DOCS}torch.linalg."
_SORTED: Final = PropertyRow((1,), _selects_distinct, f"{_DOCS}torch.sort.html, `stable`", is_unstable)
_PICKED: Final = PropertyRow((1,), _selects, f"{_DOCS}torch.median.html, the note on indices")
#: Memory that nothing was written to: any elements are right.
UNINITIALIZED: Final = PropertyRow((), nothing, f"{_DOCS}torch.empty.html: uninitialized data")
_POOLED: Final = PropertyRow((1,), _selects_pooled, f"{_DOCS}torch.nn.MaxPool2d.html says nothing of ties in a window")
#: PyTorch's maintainers ask not to report differing indices of extremes against the compiler.
_EXTREME: Final = PropertyRow(
    (1,), _selects, "pytorch/pytorch .github/ISSUE_TEMPLATE/pt2-bug-report.yml", only_compiled=True
)
_RANDOM_SOURCE: Final = "https://docs.pytorch.org/docs/2.13/notes/randomness.html"

TABLE: Final[Mapping[str, PropertyRow]] = {
    "torch.linalg.eigh": PropertyRow((1,), matrices.eigenvectors, f"{_LINALG}eigh.html, the warning on uniqueness"),
    "torch.linalg.eig": PropertyRow((0, 1), matrices.eigenpairs, f"{_LINALG}eig.html, the warnings on order and norm"),
    "torch.linalg.eigvals": PropertyRow((), matrices.same_multiset, f"{_LINALG}eigvals.html: no order is guaranteed"),
    "torch.linalg.svd": PropertyRow((0, 2), matrices.singular_vectors, f"{_LINALG}svd.html, the warning on uniqueness"),
    "torch.svd": PropertyRow(
        (0, 2), matrices.singular_vectors_as_columns, f"{_DOCS}torch.svd.html, the warning on uniqueness"
    ),
    "torch.linalg.qr": PropertyRow((0, 1), matrices.orthogonal_factors, f"{_LINALG}qr.html, the sign of R's diagonal"),
    "torch.qr": PropertyRow((0, 1), matrices.orthogonal_factors, f"{_DOCS}torch.qr.html"),
    "torch.sort": _SORTED,
    "torch.msort": _SORTED,
    "torch.argsort": _SORTED._replace(outputs=()),
    "torch.topk": _SORTED._replace(source=f"{_DOCS}torch.topk.html and pytorch/pytorch#27542 on ties"),
    "torch.kthvalue": _PICKED,
    "torch.median": _PICKED,
    "torch.nanmedian": _PICKED,
    "torch.mode": PropertyRow(
        (0, 1), _most_frequent, f"{_DOCS}torch.mode.html: *a* value which appears most often"
    ),
    "torch.cummax": _PICKED._replace(broken=_selects_value, source=f"{_DOCS}torch.cummax.html"),
    "torch.cummin": _PICKED._replace(broken=_selects_value, source=f"{_DOCS}torch.cummin.html"),
    "torch.max": _EXTREME,
    "torch.min": _EXTREME,
    "torch.argmax": _EXTREME._replace(outputs=()),
    "torch.argmin": _EXTREME._replace(outputs=()),
    "torch.unique": PropertyRow(
        (0, 1, 2), _same_set, f"{_DOCS}torch.unique.html, `sorted`", is_unsorted
    ),
    **{f"torch.nn.functional.{kind}max_pool{n}d{end}": _POOLED
       for kind in ("", "adaptive_") for n in (1, 2, 3) for end in ("", "_with_indices")},
    "torch.ops.aten._make_dep_token": UNINITIALIZED,
    "torch.ops.aten._ctc_loss": PropertyRow((1,), nothing, "pytorch/pytorch LossCTC.cpp: log_alpha up to the lengths"),
    "torch.ops.aten.mkldnn_rnn_layer": PropertyRow(
        (3,), nothing, "pytorch/pytorch mkldnn/RNN.cpp: workspace of the library"
    ),
    **{f"torch.{name}": UNINITIALIZED for name in ("empty", "empty_like", "empty_strided", "empty_permuted")},
    **{f"torch.Tensor.{name}": UNINITIALIZED for name in ("new_empty", "new_empty_strided", "resize")},
}  # fmt: skip


#: A module with dropout inside, if the sides draw different numbers: only shape and dtype can be compared.
DRAWN_INSIDE: Final = PropertyRow((), nothing, _RANDOM_SOURCE)


#: Entries of the dispatcher that are given the random numbers that the public operators draw.
_GIVEN_NUMBERS: Final = frozenset({"fractional_max_pool2d", "fractional_max_pool3d"})


def row_of(operator: str) -> PropertyRow | None:
    """Return an operator's row; ``None`` if its result is unique."""
    is_dispatched = operator.startswith(DISPATCHER)
    is_dispatched_draw = is_dispatched and is_random(operator)
    if (found := TABLE.get(operator)) is not None:
        return found
    operator = public_operator(operator)
    found = TABLE.get(operator)
    name = operator.rpartition(".")[2]
    if is_dispatched and name in _GIVEN_NUMBERS:
        return found
    if found is None and (ties := ties_of(operator)) is not None:
        return PropertyRow((ties,), partial(_selects_ties, ties), f"`ties={ties}` of {operator}")
    if found is None and (name in RANDOM or is_dispatched_draw):
        return PropertyRow((), _PROMISED.get(name, nothing), _RANDOM_SOURCE, is_drawn)
    return found


@dataclass(frozen=True, slots=True)
class PropertyQuestion:
    """A call of the table with the values of both sides.

    Args:
        row: The definition.
        ours: The candidate's call.
        theirs: The reference's.
    """

    row: PropertyRow
    ours: SideCall
    theirs: SideCall

    @property
    def answer(self) -> str:
        """How the candidate breaks the definition; ``""`` if it does not, or if the reference breaks it, too."""
        problem = self.row.broken(self.ours)
        return problem if problem and not self.row.broken(self.theirs) else ""


def is_free(row: PropertyRow, call: SideCall, *, is_compiled: bool) -> bool:
    """Whether a given call leaves a choice."""
    return (is_compiled or not row.only_compiled) and row.applies(call)
