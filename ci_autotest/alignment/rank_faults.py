"""What the ranks of a group do not agree on, as differences of kind ``rank``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.alignment.properties.call import nothing
from ci_autotest.alignment.properties.table import row_of
from ci_autotest.alignment.value_places import value_place
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.program.ir import maker_of
from ci_autotest.values.verdict import BackwardPass, Call, Gradient, Misalignment, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.alignment.gradients import RestExamination
    from ci_autotest.backends.trace import RankFault, Trace
    from ci_autotest.program.ir import Step
    from ci_autotest.values.verdict import Place


def with_rank_faults(
    found: list[Misalignment], candidate: Trace, examination: RestExamination, *, has_backward: bool = False
) -> list[Misalignment]:
    """Return differences with those of the ranks, each in place of what else differs there.

    Args:
        found: Differences of the values in the order of steps, or of the gradients from the output back.
        candidate: The candidate's trace.
        examination: The examination of the program.
        has_backward: Whether they are those of the backward pass.
    """
    if not candidate.rank_faults:
        return found
    faults = [fault for fault in candidate.rank_faults if (fault.key is not None) is has_backward]
    own = [
        _difference(fault, examination) for fault in faults if fault.is_call or _is_defined(fault, examination.steps)
    ]
    # A value that the ranks do not agree on has no elements that could be compared.
    places = {(item.step, str(item.at)) for item in own}
    others = [item for item in found if (item.step, str(item.at)) not in places]
    return sorted([*own, *others], key=lambda item: -item.step if has_backward else item.step)


def _is_defined(fault: RankFault, steps: Sequence[Step]) -> bool:
    """Whether anything is defined of the elements on which ranks differ; of uninitialized memory nothing is."""
    row = row_of(step_operator(steps[maker_of(steps, fault.step)], steps))
    return row is None or row.broken is not nothing


def _difference(fault: RankFault, examination: RestExamination) -> Misalignment:
    return Misalignment(
        kind="rank", step=fault.step, at=_place(fault, examination), candidate=fault.seen, reference=fault.expected,
        detail=fault.detail[:2000],
    )  # fmt: skip


def _place(fault: RankFault, examination: RestExamination) -> Place:
    names = examination.names
    if fault.state:
        return State(name=fault.state)
    if fault.key is None:
        if fault.is_call:
            return Call(name=names[fault.step])
        return value_place(names, examination.steps, fault.step)
    if fault.is_call:
        return BackwardPass()
    return Gradient(name=names[fault.step], parameter="" if isinstance(fault.key, int) else fault.key[1])
