"""Stages for a case that ends its worker: record it on the reference, locate the step, and isolate that step."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import is_own
from ci_autotest.findings.diagnosis import NOWHERE, Diagnosis, LossPlace, Route, flaky, shown_of
from ci_autotest.findings.shrink_driver import ShrinkTrial
from ci_autotest.findings.stateful import OF_PROBES, STATEFUL, calls_of_history
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.run.messages import Broken, Confirm, Record, Tried, TryProgram
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.shrink.shrinker import ShownTrial
from ci_autotest.values.schedule import RowName, asks
from ci_autotest.values.verdict import BackwardPass, InFlight, Misalignment, Verdict

if TYPE_CHECKING:
    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Inspection, Tools
    from ci_autotest.program.recording import Recording
    from ci_autotest.run.single_worker import SingleWorker

#: The step that the progress beacon shows during a backward pass.
_BACKWARD_STEP: Final = -2
#: The step that it shows while a body is compiled or exported.
_COMPILING_STEP: Final = -5
#: At most this many calls are tried, to find the one whose backward pass ends the worker.
_TRIED_IN_BACKWARD: Final = 20
_AFTER_CALLS: Final = "its last call ends no process alone: it needs the calls before it"
#: The verdict on a lost case before the reference has recorded its program.
ITS_TEST: Final = Verdict(outcome="crashed", target="its test")


def by_operator(suspect: Suspect, tools: Tools) -> list[Suspect]:
    """Split a suspect by the operators in which the first few cases of its test ended their worker.

    The whole run then finds the same as its shards would, each of which sees only a part of the cases. Cases that
    cannot be located, and cases beyond the first few, stay with the first operator.
    """
    # A hang is not split, because each case would take the whole timeout again.
    if suspect.lost is None or suspect.lost.timed_out or suspect.repeats != "alone" or not suspect.others:
        return [suspect]
    groups: dict[str, list[int]] = {}
    with closing(tools.fresh()) as fresh:
        for case, attempt in [(suspect.case, suspect.attempt), *(other[:2] for other in suspect.others)]:
            groups.setdefault(_operator_of(suspect._replace(case=case, attempt=attempt), fresh), []).append(case)
    (first, *rest), (hit,) = groups.values(), suspect.hits
    attempts = {case: attempt for case, attempt, _ in suspect.others}
    left = [case for case in hit.cases if not any(case in cases for cases in rest)]
    # Only the first few cases are located; all others stay with the first operator.
    count = hit.count - sum(map(len, rest))
    parts = [(first[0], left, count), *((cases[0], cases, len(cases)) for cases in rest)]
    return [
        suspect._replace(
            case=case, attempt=attempts.get(case, suspect.attempt), cases=number, others=(),
            hits=(msgspec.structs.replace(hit, cases=tuple(cases), count=number),),
        )
        for case, cases, number in parts
    ]  # fmt: skip


def _operator_of(suspect: Suspect, fresh: SingleWorker) -> str:
    """Return the operator in whose call a case ends its worker; empty if the worker does not report its steps."""
    # The worker was lost before it told which attempt it ran.
    if suspect.attempt < 0:
        return ""
    lost = fresh.ask(msgspec.structs.replace(_confirm_request(suspect), has_guard=False))
    if not isinstance(lost, WorkerLostError) or lost.spot.step < 0:
        return ""
    alone = fresh.ask(_record_request(suspect, LossPlace(lost.spot.step, has_backward=False)))
    return alone.verdict.operator if isinstance(alone, Tried) else ""


def lost_again(diagnosis: Diagnosis, lost: WorkerLostError) -> Diagnosis:
    """Return the diagnosis of a case that was wrong in its worker and ends a fresh one."""
    verdict, suspect = crash_verdict(ITS_TEST, lost), diagnosis.suspect._replace(lost=lost)
    return replace(diagnosis, suspect=suspect, verdict=verdict, lost=lost, route=Route.LOSS)


def record(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Record the case on the reference alone, because its worker was lost before it could return the program."""
    suspect = diagnosis.suspect
    recorded = inspection.fresh.ask(_record_request(suspect))
    if isinstance(recorded, Broken):
        return _not_confirmed(diagnosis, recorded)
    if isinstance(recorded, WorkerLostError):
        return flaky(suspect, recorded)
    return replace(
        _with_verdict(diagnosis, recorded.verdict),
        suspect=suspect._replace(attempt=recorded.attempt, profile=recorded.profile),
        whole=shown_of(recorded).recording,
    )


def record_after_cases(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Record a case that does not end its worker alone; its program shows nothing and is only written for reading."""
    recorded = inspection.fresh.ask(_record_request(diagnosis.suspect))
    if not isinstance(recorded, Tried):
        return diagnosis.settled()
    return replace(_with_verdict(diagnosis, recorded.verdict), shown=shown_of(recorded))


def find_calls(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Find the calls after which a case ends its worker, which alone it does not; its program is made of them."""
    suspect, lost = diagnosis.suspect, diagnosis.lost
    # Each trial of a hang takes the whole timeout, and of a leak the whole memory; calls of a compiler are one graph.
    if suspect.repeats != "history" or lost is None or lost.limit or inspection.is_compiled(suspect):
        return diagnosis
    called = calls_of_history(suspect, inspection.fresh)
    if called is None:
        return diagnosis
    again = ShrinkTrial(suspect, inspection.fresh, is_alone=True).run(called.recording)
    if not isinstance(again, WorkerLostError) or again.spot.step < 0:
        return diagnosis
    question = _record_request(suspect)
    if (origin := called.origins.get(again.spot.step)) is not None:
        test, call, step = origin
        question = Record(
            test=test, case=call.case, attempt=call.attempt, candidate=suspect.candidate, step=step,
            probe=call.row in OF_PROBES,
        )  # fmt: skip
    found = _after_calls(diagnosis, called.recording, again, question, inspection)
    return replace(found, detail=None, no_program="") if found is not None else diagnosis


def confirm_loss(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Run the case again while the candidate reports each step."""
    again = inspection.fresh.ask(_confirm_request(diagnosis.suspect))
    if isinstance(again, Broken):
        return _not_confirmed(diagnosis, again)
    if isinstance(again, WorkerLostError):
        return replace(diagnosis, lost=_without_guard(diagnosis.suspect, again, inspection))
    if again.verdict.outcome == "misaligned":  # The case fails either way, so report what it shows now.
        return replace(
            diagnosis, verdict=again.verdict, shown=shown_of(again), whole=None, is_confirmed=True, route=Route.WHOLE
        )
    seen = diagnosis.verdict
    # Without the misalignment, which says that the worker was lost: it was not this time.
    as_lost = Verdict(outcome=seen.outcome, operator=seen.operator, kind=seen.kind)
    return _in_probe(diagnosis, inspection) or flaky(diagnosis.suspect._replace(verdict=as_lost), again)


def _without_guard(suspect: Suspect, lost: WorkerLostError, inspection: Inspection) -> WorkerLostError:
    """Return how the worker is lost without guard bands; if it is with them alone, no step of the body ends it."""
    if not asks(RowName.GUARD, suspect.case):
        return lost
    plain = inspection.fresh.ask(msgspec.structs.replace(_confirm_request(suspect), has_guard=False))
    if isinstance(plain, WorkerLostError):
        return plain
    nowhere = lost.spot._replace(step=-1)
    return WorkerLostError(lost.reason, nowhere, lost.output, limit=lost.limit, is_killed=lost.is_killed)


def locate(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Find the step that ends the worker, and record that step alone."""
    suspect, lost, whole = diagnosis.suspect, diagnosis.lost, diagnosis.whole
    assert lost is not None and whole is not None  # noqa: S101, PT018 - earlier stages have set them
    has_backward = lost.spot.step == _BACKWARD_STEP
    step = lost.spot.step if lost.spot.step >= 0 else None
    if has_backward:
        step = _step_of_backward(suspect, whole, lost, inspection.fresh)
    alone = inspection.fresh.ask(
        _record_request(suspect, LossPlace(step, has_backward=has_backward and step is not None))
    )
    if not isinstance(alone, Tried):
        return replace(diagnosis, is_confirmed=True).settled()
    return replace(
        _with_verdict(diagnosis, alone.verdict),
        shown=shown_of(alone),
        culprit=LossPlace(step, has_backward),
        is_confirmed=True,
    )


def isolate(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Keep the step alone if it ends its worker alone, else the whole body."""
    shown, whole = diagnosis.shown, diagnosis.whole
    assert shown is not None and whole is not None  # noqa: S101, PT018 - earlier stages have set them
    if diagnosis.culprit.step is not None:
        program = TryProgram(
            program=encode_program(shown.recording), tensors=encode_tensors(shown.recording),
            candidate=diagnosis.suspect.candidate,
        )  # fmt: skip
        if isinstance(inspection.fresh.ask(program), WorkerLostError):
            return replace(diagnosis, whole=None)
    return replace(diagnosis, shown=replace(shown, recording=whole), whole=None, route=Route.WHOLE)


def _in_probe(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis | None:
    """Return the diagnosis of a case whose body ends its worker when called several times, or ``None``."""
    question = msgspec.structs.replace(_record_request(diagnosis.suspect), probe=True)
    recorded = inspection.fresh.ask(question)
    if not isinstance(recorded, Tried):
        return None
    shown = shown_of(recorded)
    calls = replace(shown.recording, note=msgspec.structs.replace(shown.recording.note, kind=STATEFUL))
    lost = ShrinkTrial(diagnosis.suspect, inspection.fresh, is_alone=True).run(calls)
    if not isinstance(lost, WorkerLostError) or lost.spot.step < 0:
        return None
    at_step = msgspec.structs.replace(question, step=lost.spot.step)
    return _after_calls(diagnosis, calls, lost, at_step, inspection)


def _after_calls(
    diagnosis: Diagnosis, calls: Recording, lost: WorkerLostError, question: Record, inspection: Inspection
) -> Diagnosis | None:
    """Return the diagnosis of a worker that calls have ended; the reference records the step at which it was lost."""
    recorded = inspection.fresh.ask(question)
    if not isinstance(recorded, Tried):
        return None
    verdict = recorded.verdict
    at_call = msgspec.structs.replace(verdict, outcome="crashed", kind="stateful", step=lost.spot.step)
    found = replace(
        _with_verdict(replace(diagnosis, lost=lost), verdict),
        shown=ShownTrial(at_call, calls), whole=None, is_confirmed=True, route=Route.LOSS_AFTER_CALLS,
    )  # fmt: skip
    return found.noted(_AFTER_CALLS)


def _step_of_backward(suspect: Suspect, whole: Recording, lost: WorkerLostError, fresh: SingleWorker) -> int | None:
    """Return the last call whose own backward pass ends its worker; ``None`` if none does alone.

    Hosts and torch's own engine run the backward pass as a whole, so the beacon names only the pass, not its step.
    """
    calls = [index for index, _ in whole.program.calls]
    if lost.timed_out or len(calls) == 1:
        return None  # Each trial of a hang takes the whole timeout, and with one call there is nothing to find.
    # From the end, as a backward pass runs.
    for step in calls[: -_TRIED_IN_BACKWARD - 1 : -1]:
        alone = fresh.ask(_record_request(suspect, LossPlace(step, has_backward=True)))
        if not isinstance(alone, Tried):
            continue
        program = TryProgram(program=alone.program, tensors=alone.tensors, candidate=suspect.candidate)
        if isinstance(fresh.ask(program), WorkerLostError):
            return step
    return None


def _confirm_request(suspect: Suspect) -> Confirm:
    """Return the request that runs a case on both sides while the candidate reports each step."""
    return Confirm(test=suspect.test, case=suspect.case, attempt=suspect.attempt, candidate=suspect.candidate)


def _record_request(suspect: Suspect, culprit: LossPlace = NOWHERE) -> Record:
    """Return the request that records a case, or one step of it, on the reference alone."""
    return Record(
        test=suspect.test, case=suspect.case, attempt=suspect.attempt if suspect.attempt >= 0 else None,
        candidate=suspect.candidate, step=culprit.step, has_backward=culprit.has_backward,
    )  # fmt: skip


def _not_confirmed(diagnosis: Diagnosis, broken: Broken) -> Diagnosis:
    """Return a case that could not run again. It is not called flaky, because nothing showed that it is right."""
    seen = diagnosis.verdict.misalignment
    detail = seen.detail if seen is not None else ""
    return diagnosis.settled(f"{detail}; not confirmed: {broken.message}".lstrip("; "))


def _with_verdict(diagnosis: Diagnosis, verdict: Verdict) -> Diagnosis:
    """Return the diagnosis with the verdict on another step, which the reference ran alone."""
    assert diagnosis.lost is not None  # noqa: S101 - the case ended its worker
    return replace(diagnosis, verdict=crash_verdict(verdict, diagnosis.lost))


def crash_verdict(verdict: Verdict, lost: WorkerLostError) -> Verdict:
    """Return the verdict on a step in which a worker was lost.

    Args:
        verdict: The verdict on the program that the reference recorded alone; it has no operator if none was recorded.
        lost: How the worker was lost.
    """
    is_recorded = bool(verdict.operator)
    kind, outcome = ("timeout", "timed_out") if lost.timed_out else ("crash", "crashed")
    at: BackwardPass | InFlight = InFlight(target=verdict.target, compiling=lost.spot.step == _COMPILING_STEP)
    if lost.spot.step == _BACKWARD_STEP:
        at = BackwardPass()
    misalignment = Misalignment(
        kind=kind, step=verdict.step, at=at, candidate=f"the worker {lost.reason}",  # type: ignore[arg-type]
        reference="returns" if is_recorded else "unknown",
        detail=_crash_location(lost.output),
    )  # fmt: skip
    return msgspec.structs.replace(
        verdict, outcome=outcome, kind=kind, blame="candidate", misalignment=misalignment,
        oracle="the reference runs the same program to its end" if is_recorded else "the reference was not run alone",
    )  # fmt: skip


def _crash_location(output: str) -> str:
    """Return the innermost user frame that the fault handler printed, or else the last printed line."""
    frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', output)
    # The reader looks for a line of the kernel's own file.
    foreign = ("site-packages", "/lib/python", "<string>")
    own = [f for f in frames if not any(part in f[0] for part in foreign) and not is_own(f[0])]
    if own:
        file, line, name = own[0]
        return f"{Path(file).name}, line {line} in {name}"
    printed = [text for text in output.strip().splitlines() if not text.startswith(("  File", "Current thread"))]
    return f"it printed: {printed[-1][:300]}" if printed and not frames else ""
