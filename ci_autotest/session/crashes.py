"""Findings of workers that were lost: the program from the reference alone, then the step, then that step alone."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import is_own
from ci_autotest.judgement import BackwardPass, InFlight, Misalignment, Verdict
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.report.artifacts import FINDINGS, remove_finding
from ci_autotest.run.lost import WorkerLostError
from ci_autotest.run.messages import Broken, Confirm, Record, Tried, TryProgram
from ci_autotest.session.made import (
    Workshop,
    finding_of,
    flaky,
    shown_of,
    with_program,
    write,
    written,
)
from ci_autotest.session.trying import Trial, shrink_calls_that_crash, shrink_crash
from ci_autotest.shrink.data import zeroed
from ci_autotest.shrink.shrinker import Shown

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.result import Finding
    from ci_autotest.run.fresh import Fresh
    from ci_autotest.session.ledger import Suspect

#: The step in flight of a worker that goes back.
_IN_BACKWARD: Final = -2
#: Calls that are looked at for the one whose backward pass ends the worker.
_TRIED_IN_BACKWARD: Final = 20


def by_operator(suspect: Suspect, workshop: Workshop) -> list[Suspect]:
    """Return one suspect for each operator in which the first few cases of a test ended their worker, in their order.

    What the test's shards would find apart is then found apart by the whole run too. What could not be located, and
    cases beyond the first few, go with the first.
    """
    if suspect.lost is None or suspect.lost.timed_out or suspect.repeats != "alone" or not suspect.others:
        return [suspect]
    groups: dict[str, list[int]] = {}
    with closing(workshop.fresh()) as fresh:
        for case, attempt in [(suspect.case, suspect.attempt), *(other[:2] for other in suspect.others)]:
            groups.setdefault(_operator_of(suspect._replace(case=case, attempt=attempt), fresh), []).append(case)
    (first, *rest), (hit,) = groups.values(), suspect.hits
    attempts = {case: attempt for case, attempt, _ in suspect.others}
    left = [case for case in hit.cases if not any(case in cases for cases in rest)]
    count = hit.count - sum(map(len, rest))
    parts = [(first[0], left, count), *((cases[0], cases, len(cases)) for cases in rest)]
    return [
        suspect._replace(
            case=case, attempt=attempts.get(case, suspect.attempt), cases=number, others=(),
            hits=(msgspec.structs.replace(hit, cases=tuple(cases), count=number),),
        )
        for case, cases, number in parts
    ]  # fmt: skip


def _operator_of(suspect: Suspect, fresh: Fresh) -> str:
    """Return the operator in whose call a case ends its worker; empty where that is not told."""
    if suspect.attempt < 0:
        return ""
    lost = fresh.ask(
        Confirm(test=suspect.test, case=suspect.case, attempt=suspect.attempt, candidate=suspect.candidate)
    )
    if not isinstance(lost, WorkerLostError) or lost.spot.step < 0:
        return ""
    alone = fresh.ask(_isolated(suspect, lost.spot.step, goes_back=False))
    return alone.verdict.operator if isinstance(alone, Tried) else ""


def lost_finding(suspect: Suspect, workshop: Workshop, fresh: Fresh, told: Collection[str] = ()) -> Finding:
    """Make a finding of a worker that was lost: the program from the reference alone, then the step, then that step.

    The folders of findings that are ``told`` stay as they are: one that turns out to be among them is counted there.
    """
    lost = suspect.lost
    assert lost is not None  # noqa: S101 - the caller looked
    recorded = fresh.ask(
        Record(
            test=suspect.test,
            case=suspect.case,
            attempt=suspect.attempt if suspect.attempt >= 0 else None,
            candidate=suspect.candidate,
        )
    )
    if isinstance(recorded, Broken):
        return _unasked(crash(suspect, Verdict(outcome="crashed", target="its test"), lost, workshop), recorded)
    if isinstance(recorded, WorkerLostError):
        return flaky(suspect, recorded, workshop)
    suspect = suspect._replace(attempt=recorded.attempt, profile=recorded.profile)
    shown = shown_of(recorded)
    first = crash(suspect, recorded.verdict, lost, workshop)
    if first.id not in told:
        write(first, shown.recording, workshop)
    again = fresh.ask(
        Confirm(
            test=suspect.test,
            case=suspect.case,
            attempt=suspect.attempt,
            candidate=suspect.candidate,
        )
    )
    if isinstance(again, Broken):
        return _unasked(first, again)
    if not isinstance(again, WorkerLostError):
        return _not_lost_again(first, again, (suspect, workshop, fresh), told)
    goes_back = again.spot.step == _IN_BACKWARD
    step = again.spot.step if again.spot.step >= 0 else None
    if goes_back:
        step = _step_of_backward(suspect, shown, again, fresh)
    alone = fresh.ask(_isolated(suspect, step, goes_back=goes_back and step is not None))
    if isinstance(alone, Tried):
        finding = msgspec.structs.replace(crash(suspect, alone.verdict, again, workshop), confirmed=True)
        small = shown_of(alone)
        program = TryProgram(program=alone.program, tensors=alone.tensors, candidate=suspect.candidate)
        _forget(first, finding, workshop, told)
        if finding.id in told:
            return finding
        cut = step is not None and isinstance(fresh.ask(program), WorkerLostError)
        kept = small if cut else shown
        if cut:
            # The unshrunk finding is on disk before the candidate is asked again.
            write(with_program(finding, kept.recording, workshop), kept.recording, workshop, repro=True)
            kept = _smallest(kept, suspect, fresh, (step, goes_back))
        finding = with_program(finding, kept.recording, workshop)
        return written(msgspec.structs.replace(finding, shrunk=cut), kept.recording, workshop, suspect.test)
    return msgspec.structs.replace(first, confirmed=True)


def _crash_of_probe(suspect: Suspect, workshop: Workshop, fresh: Fresh) -> Finding | None:
    """Return the finding of a case whose body ends its worker when it is called several times, if it does."""
    question = Record(
        test=suspect.test, case=suspect.case, attempt=suspect.attempt, candidate=suspect.candidate, probe=True
    )
    recorded = fresh.ask(question)
    if not isinstance(recorded, Tried):
        return None
    shown = shown_of(recorded)
    calls = replace(shown.recording, note={**shown.recording.note, "kind": "stateful"})
    trial = Trial(suspect, fresh, is_sequence=True)
    lost = trial.run(calls)
    if not isinstance(lost, WorkerLostError) or lost.spot.step < 0:
        return None
    single = fresh.ask(msgspec.structs.replace(question, step=lost.spot.step))
    verdict = single.verdict if isinstance(single, Tried) else recorded.verdict
    finding = msgspec.structs.replace(crash(suspect, verdict, lost, workshop), confirmed=True)
    write(with_program(finding, calls, workshop), calls, workshop, repro=True)
    at_call = msgspec.structs.replace(verdict, outcome="crashed", kind="stateful", step=lost.spot.step)
    fewest = shrink_calls_that_crash(Shown(at_call, calls), trial).recording
    shrunk = msgspec.structs.replace(finding, shrunk=True)
    return written(with_program(shrunk, fewest, workshop), fewest, workshop, suspect.test)


def _forget(first: Finding, found: Finding, workshop: Workshop, told: Collection[str]) -> None:
    """Remove the folder of a finding that turned out to be another."""
    if found.id != first.id and first.id not in told:
        remove_finding(workshop.output / FINDINGS / first.id)


def _not_lost_again(
    first: Finding, again: Tried, made_of: tuple[Suspect, Workshop, Fresh], told: Collection[str]
) -> Finding:
    """Return the finding of a case that ended its process, and does not do so with each step watched."""
    suspect, workshop, fresh = made_of
    if again.verdict.outcome == "misaligned":  # Either way it fails.
        shown = shown_of(again)
        finding = msgspec.structs.replace(finding_of(suspect, again.verdict, workshop), confirmed=True)
        _forget(first, finding, workshop, told)
        if finding.id in told:
            return finding
        return written(with_program(finding, shown.recording, workshop), shown.recording, workshop, suspect.test)
    in_probe = _crash_of_probe(suspect, workshop, fresh)
    if in_probe is not None:
        _forget(first, in_probe, workshop, told)
        return in_probe
    seen = Verdict(outcome=first.outcome, operator=first.operator, kind=first.kind)
    return flaky(suspect._replace(verdict=seen), again, workshop)


def _step_of_backward(suspect: Suspect, shown: Shown, lost: WorkerLostError, fresh: Fresh) -> int | None:
    """Return the call whose own backward pass ends its worker, the last first; ``None`` where none does alone.

    Where a host, or an engine of torch's own, is told as a whole: it was lost somewhere in the backward pass.
    """
    calls = [index for index, _ in shown.recording.program.calls]
    if lost.timed_out or len(calls) == 1:
        return None  # Each that hangs takes its time, and of one there is no choice.
    for step in calls[: -_TRIED_IN_BACKWARD - 1 : -1]:
        alone = fresh.ask(_isolated(suspect, step, goes_back=True))
        if not isinstance(alone, Tried):
            continue
        program = TryProgram(program=alone.program, tensors=alone.tensors, candidate=suspect.candidate)
        if isinstance(fresh.ask(program), WorkerLostError):
            return step
    return None


def _isolated(suspect: Suspect, step: int | None, *, goes_back: bool) -> Record:
    """Return the question for a case, or one step of it, on the reference alone."""
    return Record(
        test=suspect.test, case=suspect.case, attempt=suspect.attempt, candidate=suspect.candidate, step=step,
        goes_back=goes_back,
    )  # fmt: skip


def _unasked(finding: Finding, why: Broken) -> Finding:
    """Return a finding that could not be looked at again: that nothing was shown is no sign that it is flaky."""
    return msgspec.structs.replace(finding, detail=f"{finding.detail}; not confirmed: {why.message}".lstrip("; "))


def _smallest(shown: Shown, suspect: Suspect, fresh: Fresh, at: tuple[int | None, bool]) -> Shown:
    """Return the smallest that ends its worker; of one that hangs only zeros are tried: a trial takes its timeout."""
    if suspect.lost is not None and not suspect.lost.timed_out:
        return shrink_crash(shown, Trial(suspect, fresh), at[0], goes_back=at[1])
    plain = zeroed(shown.recording)
    answer = fresh.ask(
        TryProgram(program=encode_program(plain), tensors=encode_tensors(plain), candidate=suspect.candidate)
    )
    return replace(shown, recording=plain) if isinstance(answer, WorkerLostError) else shown


def crash(suspect: Suspect, verdict: Verdict, lost: WorkerLostError, workshop: Workshop) -> Finding:
    """Return the finding of a worker that was lost in a step, without its program.

    Args:
        suspect: The case.
        verdict: Of the program as the reference ran it alone; without an operator where the reference was not asked.
        lost: How the worker was lost.
        workshop: Makes the finding.
    """
    was_asked = bool(verdict.operator)
    kind, outcome = ("timeout", "timed_out") if lost.timed_out else ("crash", "crashed")
    at = BackwardPass() if lost.spot.step == _IN_BACKWARD else InFlight(target=verdict.target)
    misalignment = Misalignment(
        kind=kind, step=verdict.step, at=at, candidate=f"the worker {lost.reason}",  # type: ignore[arg-type]
        reference="returns" if was_asked else "unknown",
        detail=_where_it_died(lost.output),
    )  # fmt: skip
    told = msgspec.structs.replace(
        verdict, outcome=outcome, kind=kind, blame="candidate", misalignment=misalignment,
        oracle="the reference runs the same program to its end" if was_asked else "the reference was not run alone",
    )  # fmt: skip
    return finding_of(suspect, told, workshop)


def _where_it_died(output: str) -> str:
    """Return the innermost frame of the user's that the fault handler printed, else the last line that was printed."""
    frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', output)
    foreign = ("site-packages", "/lib/python", "<string>")
    own = [f for f in frames if not any(part in f[0] for part in foreign) and not is_own(f[0])]
    if own:
        file, line, name = own[0]
        return f"{Path(file).name}, line {line} in {name}"
    printed = [text for text in output.strip().splitlines() if not text.startswith(("  File", "Current thread"))]
    return f"it printed: {printed[-1][:300]}" if printed and not frames else ""
