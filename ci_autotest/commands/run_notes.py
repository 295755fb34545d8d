"""The notes of a run: what a reader of its report must know beside the findings."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from ci_autotest.commands.budget import not_run_note
from ci_autotest.commands.case_counts import left_notes, uncompared
from ci_autotest.commands.speed_stage import untimed
from ci_autotest.config import shapes_of
from ci_autotest.config.known_differences import ending_rows, unmatched
from ci_autotest.findings.own_tests import unrepeated_notes
from ci_autotest.values.amounts import plural

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.commands.run_state import RunState
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import CandidateInfo
    from ci_autotest.values.speed import SpeedResult

#: Greatest number of remarks on one test.
_REMARKS: Final = 10


def run_notes(state: RunState, findings: tuple[Finding, ...], *, is_whole: bool) -> tuple[str, ...]:
    """Return the sentences that every reader must see."""
    known = state.request.config.known
    notes = [
        f"candidate {info.name!r} was skipped: {why_not_available(info)}" for info in state.infos if not info.available
    ]
    if state.request.device == "cuda":
        notes += [
            f"candidate {each.name!r} stayed on the CPU: --device cuda is not for ranks that are simulated, nor for "
            "those of another framework"
            for each in state.request.candidates
            if each.stays_on_cpu
        ]
    if shapes := shapes_of(state.request.candidates):
        notes.append(
            f"the cases of a test share {shapes} sets of sizes and choices, with new data each time, because a "
            "candidate compiles for every shape (`shapes:` of a candidate)"
        )
    notes += [f"{each.name} was not timed: {why}" for each in state.request.candidates if (why := untimed(each))]
    notes += [state.untimed] if state.untimed else []
    notes += state.unused
    notes += [said for said in (state.choice, state.foreign) if said]
    if state.is_stopped:
        notes.append(f"stopped after {plural(state.failures, 'failure')} (-x or --maxfail)")
    if state.request.is_in_process:
        notes.append(
            "everything ran in one process (--workers 0): no finding was confirmed in a fresh process, and no case "
            "had a time limit"
        )
    differences: list[Finding | SpeedResult] = [*findings, *state.speed]
    today = datetime.now(timezone.utc).date()
    notes += ending_rows(differences, known, today)
    if is_whole:
        notes += unmatched(differences, known, today)
    if state.ledger.passed:
        reasons = ", ".join(sorted({error.reason for error in state.ledger.passed}))
        notes.append(
            f"workers were lost {len(state.ledger.passed)} times ({reasons}), and no case repeats it; their cases were "
            "run again, and that result counts"
        )
    notes += [
        f"fixed: {entry.operator} ({entry.kind}) on {entry.candidate} no longer fails; it is kept as a regression case"
        for entry in state.regressions.fixed
    ]
    notes += [
        f"{entry.info.id}: {entry.tally.outside} cases have an input that may have been computed outside of the "
        "recorded steps, by numpy or another library; both sides get it as an input, and it is not compared"
        for entry in state.ledger.tests.values()
        if entry.tally.outside
    ]
    notes += [
        f"{name} has no {', '.join(usage.left_out)}: left out of its modules, and not compared"
        for name, usage in state.ledger.usage.items()
        if usage.left_out
    ]
    notes += [
        f"{test} on {name}: {note}"
        for (test, name), pair in state.ledger.pairs.items()
        for note in uncompared(pair.added.cost)
    ]
    notes += [f"{test}: {remark}" for test in state.ledger.tests for remark in _few(state.ledger.remarks.get(test, ()))]
    notes += dict.fromkeys(state.ledger.cut)
    notes += left_notes(state.ledger.left)
    notes += unrepeated_notes(state.triage.unrepeated)
    notes += [note for note in (not_run_note(state.ledger), *state.regressions.refused, *state.database.notes) if note]
    return tuple(notes)


def _few(remarks: Collection[str]) -> list[str]:
    """Return the first remarks on a test; a grid may have a million points that the reference rejects."""
    rest = len(remarks) - _REMARKS
    return sorted(remarks)[:_REMARKS] + ([f"and {rest:,} more such notes"] if rest > 0 else [])


def why_not_available(info: CandidateInfo) -> str:
    """Return why a candidate is not available, without its name, which the caller's sentence has."""
    return info.reason.removeprefix(f"candidate '{info.name}': ")
