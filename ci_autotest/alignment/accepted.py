"""Accepted differences: what a row of ``known`` accepts is set aside, and the comparison of the case goes on.

Only the operator and the kind that a row names are set aside. A dtype is converted for later steps, an input that was
written to is given as a copy, and what only follows from an accepted difference is none of its own: of that, a step
counts only if it is misaligned alone, with the reference's inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec
import torch

from ci_autotest.alignment.verdict import Judged, judge_program, operator_at
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.config.known_differences import nothing_accepted
from ci_autotest.program.edit import maker_of, readers, with_copies, with_methods
from ci_autotest.program.ir import DType, output_refs, step_refs
from ci_autotest.values.verdict import KINDS, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.alignment.examination import TrialSides
    from ci_autotest.alignment.single_step import Live
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.program.ir import Argument, Program

Judge: TypeAlias = "Callable[[Live, TrialSides], Judged]"
Accepts: TypeAlias = "Callable[[Verdict], bool]"
#: Operator and kind: what a finding is identified by beside its candidate.
Identity: TypeAlias = tuple[str, str]

#: Most accepted differences of one case.
_AT_MOST: Final = 16


class Beyond(NamedTuple):
    """The judgement of a case beyond its accepted differences.

    Attributes:
        judged: What else differs. If nothing does, the first accepted difference, or that the case is aligned.
        sides: Both sides, with the rules by which it was judged.
        accepted: Verdicts on all accepted differences.
    """

    judged: Judged
    sides: TrialSides
    accepted: tuple[Verdict, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict on the case, with the accepted differences that are reported beside it."""
        beside = tuple(
            msgspec.structs.replace(item, is_beside_another=True)
            for item in self.accepted
            if item is not self.judged.verdict
        )
        return msgspec.structs.replace(self.judged.verdict, accepted=beside) if beside else self.judged.verdict


def judged_beyond(
    live: Live, sides: TrialSides, accepts: Accepts, judge: Judge = judge_program, wanted: Identity | None = None
) -> Beyond:
    """Judge a program, and go on after each difference that is accepted.

    Args:
        live: The program with its data.
        sides: The two backends and the rules.
        accepts: Whether a verdict's difference is accepted.
        judge: Judges the program.
        wanted: Operator and kind of a difference that is returned even if it is accepted.
    """
    found: list[Judged] = []
    while True:
        judged = judge(live, sides)
        identity = identity_of(judged.verdict)
        if identity in sides.rules.set_aside and judge is not judge_program:
            judge = judge_program  # A side that differs from itself was accepted: nothing else is asked of that.
            continue
        is_set_aside = judged.verdict.outcome == "misaligned" and identity != wanted and accepts(judged.verdict)
        if not is_set_aside or identity in sides.rules.set_aside or len(found) == _AT_MOST:
            break
        found.append(judged._replace(verdict=msgspec.structs.replace(judged.verdict, is_accepted=True)))
        sides = sides._replace(rules=sides.rules.setting_aside(identity))
        live = live._replace(program=_mended(live, identity, sides.reference))
    is_done = judged.verdict.outcome == "aligned" or identity in sides.rules.set_aside
    return Beyond(found[0] if found and is_done else judged, sides, tuple(item.verdict for item in found))


def rules_beyond(program: Program, rules: Rules, accepts: Accepts) -> Rules:
    """Return the rules that set aside every difference of a program's calls that is accepted."""
    if accepts is nothing_accepted:
        return rules
    for index, _ in program.calls:
        operator, target = operator_at(program, index)
        for kind in KINDS:
            if accepts(Verdict(outcome="misaligned", operator=operator, target=target, kind=kind)):
                rules = rules.setting_aside((operator, kind))
    return rules


def identity_of(verdict: Verdict) -> Identity:
    """Return the operator and the kind of a verdict's difference."""
    return verdict.operator, verdict.kind or ""


def _mended(live: Live, identity: Identity, reference: Backend) -> Program:
    """Return a program whose later steps do not see an accepted difference, where that can be had."""
    operator, kind = identity
    program = live.program
    calls = [i for i, _ in program.calls if operator_at(program, i)[0] == operator]
    if kind in {"dtype", "shape"}:
        return _as_the_reference(live, calls, kind, reference)
    # From the last call to the first, so that the indices of earlier ones stay as they are.
    for call in reversed(calls) if kind == "mutation" else ():
        program = with_copies(program, call, _read_later(program, call))
    return program


def _as_the_reference(live: Live, calls: list[int], kind: str, reference: Backend) -> Program:
    """Return the program in which later steps use the values of some calls in the reference's dtype or shape."""
    values = reference.run(live.program, live.sources).values
    found: dict[int, Argument] = {}
    for i in range(live.program.start, len(values)):
        value = values[i]
        is_read = maker_of(live.program.steps, i) in calls and bool(readers(live.program, i))
        if is_read and isinstance(value, torch.Tensor):
            found[i] = DType(DTYPE_NAMES[value.dtype]) if kind == "dtype" else tuple(value.shape)
    return with_methods(live.program, "to" if kind == "dtype" else "reshape", found) if found else live.program


def _read_later(program: Program, call: int) -> tuple[int, ...]:
    """Return the values that a call is given and that later steps use, or the body returns."""
    given = dict.fromkeys(ref.index for ref in step_refs(program.steps[call]) if ref.index >= program.start)
    returned = {ref.index for ref in output_refs(program)}
    return tuple(i for i in given if i in returned or any(reader > call for reader in readers(program, i)))
