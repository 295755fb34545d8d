"""Stateful kernels: find the calls after which a call is wrong that is right alone.

Each trial runs in a fresh process, because the one before has left state behind.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.errors import UnsupportedReason
from ci_autotest.findings.diagnosis import Diagnosis, Route, shown_of
from ci_autotest.findings.prefix_search import CaseRun, PrefixSearch
from ci_autotest.program.call_probe import last_input
from ci_autotest.program.call_sequence import CallSequence, SequencePart, without_gradients
from ci_autotest.program.ir import PLACEHOLDER, cotangent_key
from ci_autotest.program.recording import Recording
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.program.targets import is_own
from ci_autotest.run.messages import Record, Tried, TryProgram
from ci_autotest.values.schedule import CandidateCall, Passes, RowName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.single_worker import SingleWorker
    from ci_autotest.values.verdict import Verdict

#: Times that a sequence must show the failure, each time in a fresh process.
_REPEATS: Final = 2
#: Differences of a sequence that are checked to find one whose call is right alone.
_PASSED_OVER_AT_MOST: Final = 4
#: Rows of the journal whose calls are those of a probe's program.
OF_PROBES: Final = frozenset({RowName.SEQUENCE, RowName.SERIES, RowName.REPEAT_OF_SEQUENCE})
#: Rows that call again what another row has called, on the same inputs.
_REPEATED: Final = {RowName.REPEAT: RowName.CASE, RowName.REPEAT_OF_SEQUENCE: RowName.SEQUENCE}
STATEFUL: Final = "stateful"


def of_probe(suspect: Suspect, fresh: SingleWorker) -> Diagnosis | None:
    """Return the diagnosis of a probe or a repeat that differed, from its own calls or from what ran before them.

    Many cases are repeated, but few have a probe, so recording one may fail.
    """
    recorded = _record(suspect.test, suspect.case, suspect, fresh, attempt=suspect.attempt, probe=True)
    found = _of_sequence(recorded, suspect, fresh) if recorded is not None else None
    return found or after_others(suspect, fresh)


def by_itself(suspect: Suspect, fresh: SingleWorker) -> Diagnosis | None:
    """Return the diagnosis of a body that is compiled, or on ranks, if it is wrong in a later call each time.

    No program shows it, because a program of several calls would be another body.
    """
    if not PrefixSearch(suspect, fresh).shows_alone():
        return None
    return Diagnosis(suspect, _verdict(suspect), Route.SETTLED, is_confirmed=True, no_program="calls")


def twice(suspect: Suspect, fresh: SingleWorker) -> Diagnosis | None:
    """Return the diagnosis of a case whose body is wrong when it runs a second time in the same process."""
    recorded = _record(suspect.test, suspect.case, suspect, fresh, attempt=suspect.attempt)
    if recorded is None:
        return None
    call = CandidateCall(0, 0, suspect.case, suspect.attempt, RowName.LOOK, Passes.BOTH)
    called = _called([call, call], [suspect.test], {(call.place, False): _part(recorded)}, recorded)
    return _of_sequence(called.recording, suspect, fresh)


def after_others(suspect: Suspect, fresh: SingleWorker, *, has_steps: bool = True) -> Diagnosis | None:
    """Return the diagnosis of a case, or of its probe, that is right alone, with what ran before it in its process.

    Args:
        suspect: The case.
        fresh: Runs cases in fresh processes.
        has_steps: Whether the candidate runs a program call by call; a compiler makes one graph of several cases.
    """
    search = PrefixSearch(suspect, fresh)
    runs = search.fewest()
    called = _as_called(search, runs, suspect, fresh) if runs and has_steps else None
    found = _of_sequence(called.recording, suspect, fresh) if called is not None else None
    return found or (_without_program(suspect, runs) if len(runs) > 1 else None)


def calls_of_history(suspect: Suspect, fresh: SingleWorker) -> CalledProgram | None:
    """Return the fewest calls that end the worker of a case that does not end it alone; ``None`` if none are found."""
    search = PrefixSearch(suspect, fresh)
    runs = search.fewest()
    return _as_called(search, runs, suspect, fresh) if runs else None


class CalledProgram(NamedTuple):
    """The calls of a worker as one program.

    Attributes:
        recording: The program, with the note of the wrong case.
        origins: Of each of its steps that is one of a body: the test, the call, and the step there.
    """

    recording: Recording
    origins: Mapping[int, tuple[TestInfo, CandidateCall, int]]


def _as_called(
    search: PrefixSearch, runs: Sequence[CaseRun], suspect: Suspect, fresh: SingleWorker
) -> CalledProgram | None:
    """Return the calls of the last trial that showed it, in their order; ``None`` if the wrong case is not recorded."""
    messages = [list(group) for _, group in groupby(runs, key=lambda run: run.message)]
    tests = [group[0].test for group in messages]
    asked = {(number, run.case) for number, group in enumerate(messages) for run in group}
    # A kernel that writes out of bounds may have overwritten the journal.
    calls = [
        call for call in search.calls if call.place in asked and call.candidate == 0 and call.row is not RowName.REFUSED
    ]
    parts: dict[tuple[tuple[int, int], bool], SequencePart] = {}
    noted = None
    for call in calls:
        test, is_probe = tests[call.message], call.row in OF_PROBES
        if (call.place, is_probe) in parts:
            continue
        recorded = _record(test, call.case, suspect, fresh, attempt=call.attempt, probe=is_probe)
        if recorded is not None:
            parts[call.place, is_probe] = _part(recorded)
            is_own = not is_probe and (test.id, call.case) == (suspect.test.id, suspect.case)
            noted = recorded if is_own else noted
    return None if noted is None else _called(calls, tests, parts, noted)


def _called(
    calls: Sequence[CandidateCall],
    tests: Sequence[TestInfo],
    parts: Mapping[tuple[tuple[int, int], bool], SequencePart],
    noted: Recording,
) -> CalledProgram:
    """Return calls as one program. Inputs and modules of a case live as long as the program, as in a batch.

    Args:
        calls: In their order.
        tests: Of each message.
        parts: The body or the probe of a case, by its place and whether it is the probe.
        noted: Gives the note.
    """
    sequence, ran = CallSequence(), dict[tuple[tuple[int, int], RowName], dict[int, int]]()
    origins: dict[int, tuple[TestInfo, CandidateCall, int]] = {}
    for call in calls:
        part = parts.get((call.place, call.row in OF_PROBES))
        if part is None:
            continue
        # A repeat is of what ran before; any other row has inputs and modules of its own.
        place = call.place, _REPEATED.get(call.row, call.row)
        before = ran.get(place, {}) if call.row in _REPEATED else {}
        if call.passes & Passes.FORWARD:
            given = {i: at for i, at in before.items() if i <= last_input(part.program)}
            made = ran[place] = sequence.forward(part, given or sequence.setup(part))
            origins |= {at: (tests[call.message], call, i) for i, at in made.items() if i not in given}
        if call.passes & Passes.BACKWARD and place in ran:
            sequence.gradients(part, ran[place])
    order = {old: new for new, old in enumerate(sequence.order())}
    placed = {order[at]: origin for at, origin in origins.items()}
    return CalledProgram(Recording(sequence.program(), sequence.data, noted.note), placed)


def _of_sequence(recording: Recording, suspect: Suspect, fresh: SingleWorker) -> Diagnosis | None:
    """Return the diagnosis of a sequence of calls that is wrong each time and whose wrong call is right alone.

    A call that is wrong alone too is dismissed, because the calls before it do not matter.
    """
    passed_over: list[int] = []
    for _ in range(_PASSED_OVER_AT_MOST):
        answer = _try(recording, suspect, fresh, passed_over)
        if answer is not None and answer.verdict.reason is UnsupportedReason.OUT_OF_SCOPE:
            plain = _without_gradients(recording)
            return _of_sequence(plain, suspect, fresh) if plain.program != recording.program else None
        if answer is None or answer.verdict.outcome != "misaligned":
            return _dismissed(suspect) if passed_over else None
        if _is_right_alone(answer, suspect, fresh):
            break
        # This call is wrong alone too, for example by rounding. A later one may be wrong because of calls before it.
        passed_over.append(answer.verdict.step)
    else:
        return _dismissed(suspect)
    step = answer.verdict.step
    for _ in range(_REPEATS - 1):
        again = _try(recording, suspect, fresh, passed_over)
        if again is None or again.verdict.step != step or not _is_right_alone(again, suspect, fresh):
            return None  # A failure by chance shows up at another call the next time.
    return Diagnosis(suspect, answer.verdict, Route.SEQUENCE, shown=shown_of(answer), is_confirmed=True)


def _without_gradients(recording: Recording) -> Recording:
    """Return a sequence without its backward passes: the kernels of a forward-only candidate have none."""
    return recording.with_program(without_gradients(recording.program))


def _dismissed(suspect: Suspect) -> Diagnosis:
    return Diagnosis(suspect, _verdict(suspect), Route.DISMISSED)


def _verdict(suspect: Suspect) -> Verdict:
    assert suspect.verdict is not None  # noqa: S101 - the case was not aligned
    return suspect.verdict


def _try(recording: Recording, suspect: Suspect, fresh: SingleWorker, passed_over: Sequence[int] = ()) -> Tried | None:
    """Run a program in a fresh process."""
    fresh.close()
    answer = fresh.ask(
        TryProgram(
            program=encode_program(recording), tensors=encode_tensors(recording), candidate=suspect.candidate,
            test=suspect.test, passed_over=list(passed_over),
        )
    )  # fmt: skip
    return answer if isinstance(answer, Tried) else None


def _is_right_alone(answer: Tried, suspect: Suspect, fresh: SingleWorker) -> bool:
    """Whether the call that is wrong after others is plainly aligned, or accepted, when it is the only one."""
    single = decode(answer.alone_program, answer.alone_tensors, is_own)
    alone = _try(single, suspect, fresh)
    if alone is None:
        return False
    return alone.verdict.is_accepted or (alone.verdict.outcome == "aligned" and alone.verdict.kind is None)


def _record(
    test: TestInfo, case: int, suspect: Suspect, fresh: SingleWorker, attempt: int | None = None, *, probe: bool = False
) -> Recording | None:
    """Return a case's program, or its probe, as the reference records it; ``None`` if it cannot."""
    answer = fresh.ask(Record(test=test, case=case, attempt=attempt, candidate=suspect.candidate, probe=probe))
    if not isinstance(answer, Tried) or not answer.program:
        return None
    found = decode(answer.program, answer.tensors, is_own)
    return replace(found, note=msgspec.structs.replace(found.note, kind=STATEFUL))


def _part(recording: Recording) -> SequencePart:
    program = recording.program
    data = {step.target: recording.tensors[step.target] for step in program.steps if step.op == PLACEHOLDER}
    cotangents = {
        position: (spec, recording.tensors[cotangent_key(position)])
        for position, spec in program.cotangent_specs.items()
    }
    leaves = [index for index in program.inputs if f"gradient_{index}" in recording.expected]
    return SequencePart(replace(program, cotangents=()), data, cotangents, leaves)


def _without_program(suspect: Suspect, runs: Sequence[CaseRun]) -> Diagnosis:
    """Return the diagnosis of a case that needs other cases before it, if no program of their calls shows it."""
    others = [run for run in runs if not run.is_of(suspect)]
    named = ", ".join(f"{run.test.name} {run.case}" for run in others[:5])
    count = "1 other case" if len(others) == 1 else f"{len(others)} other cases"
    detail = f"right alone, and wrong after {count} ({named})"
    verdict = msgspec.structs.replace(_verdict(suspect), kind="stateful")
    return Diagnosis(suspect, verdict, Route.SETTLED, is_confirmed=True, detail=detail, no_program="cases")
