"""The only table of operators whose outputs are not unique, with what is defined about each.

Eigenvectors, the order of ties, uninitialized memory and random numbers may differ without a fault, so they are
compared by what the documentation promises. A row is checked only if the elements differ, and counts only if the
reference itself keeps the promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.alignment.properties import choices, matrices, random_numbers
from ci_autotest.alignment.properties.call import is_drawn, is_unsorted, is_unstable, nothing
from ci_autotest.backends.operators.identity import public_operator
from ci_autotest.program.random_calls import RANDOM, is_random
from ci_autotest.program.targets import DISPATCHER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.alignment.properties.call import SideCall


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
_SORTED: Final = PropertyRow((1,), choices.selects_distinct, f"{_DOCS}torch.sort.html, `stable`", is_unstable)
_PICKED: Final = PropertyRow((1,), choices.selects, f"{_DOCS}torch.median.html, the note on indices")
#: Memory that nothing was written to: any elements are right.
UNINITIALIZED: Final = PropertyRow((), nothing, f"{_DOCS}torch.empty.html: uninitialized data")
_POOLED: Final = PropertyRow(
    (1,), choices.selects_pooled, f"{_DOCS}torch.nn.MaxPool2d.html says nothing of ties in a window"
)
#: PyTorch's maintainers ask not to report differing indices of extremes against the compiler.
_EXTREME: Final = PropertyRow(
    (1,), choices.selects, "pytorch/pytorch .github/ISSUE_TEMPLATE/pt2-bug-report.yml", only_compiled=True
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
        (0, 1), choices.most_frequent, f"{_DOCS}torch.mode.html: *a* value which appears most often"
    ),
    "torch.cummax": _PICKED._replace(broken=choices.selects_value, source=f"{_DOCS}torch.cummax.html"),
    "torch.cummin": _PICKED._replace(broken=choices.selects_value, source=f"{_DOCS}torch.cummin.html"),
    "torch.max": _EXTREME,
    "torch.min": _EXTREME,
    "torch.argmax": _EXTREME._replace(outputs=()),
    "torch.argmin": _EXTREME._replace(outputs=()),
    "torch.unique": PropertyRow(
        (0, 1, 2), choices.same_set, f"{_DOCS}torch.unique.html, `sorted`", is_unsorted
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
    if found is None and (name in RANDOM or is_dispatched_draw):
        return PropertyRow((), random_numbers.PROMISED.get(name, nothing), _RANDOM_SOURCE, is_drawn)
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
