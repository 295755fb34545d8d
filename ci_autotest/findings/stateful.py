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
from ci_autotest.program.call_sequence import SequencePart, joined, without_gradients
from ci_autotest.program.ir import PLACEHOLDER, Recording, cotangent_key
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.program.targets import is_own
from ci_autotest.run.messages import Record, Tried, TryProgram
from ci_autotest.values.case import window_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.single_worker import SingleWorker
    from ci_autotest.values.verdict import Verdict

#: Times that a sequence must show the failure, each time in a fresh process.
_REPEATS: Final = 2
#: Differences of a sequence that are checked to find one whose call is right alone.
_PASSED_OVER_AT_MOST: Final = 4
#: Calls of one case, more than a worker makes for a test's cases before the next window.
_MANY: Final = 64
NOTE: Final = {"kind": "stateful"}


def of_probe(suspect: Suspect, fresh: SingleWorker) -> Diagnosis | None:
    """Return the diagnosis of a probe or a repeat that differed, from its own calls or from what ran before them.

    Many cases are repeated, but few have a probe, so recording one may fail.
    """
    recorded = _record(suspect.test, suspect.case, suspect, fresh, attempt=suspect.attempt, probe=True)
    found = _of_sequence(recorded, suspect, fresh) if recorded is not None else None
    return found or after_others(suspect, fresh, is_probe=True)


def by_itself(suspect: Suspect, fresh: SingleWorker) -> Diagnosis | None:
    """Return the diagnosis of what a compiler made of a body, if it is wrong in a later call each time.

    No program shows it, because a program of several calls would be compiled as one.
    """
    if not PrefixSearch(suspect, fresh).shows_alone():
        return None
    return Diagnosis(suspect, _verdict(suspect), Route.SETTLED, is_confirmed=True, no_program="calls")


def twice(suspect: Suspect, fresh: SingleWorker) -> Diagnosis | None:
    """Return the diagnosis of a case whose body is wrong when it runs a second time in the same process."""
    recorded = _record(suspect.test, suspect.case, suspect, fresh, attempt=suspect.attempt)
    if recorded is None:
        return None
    part = _part(recorded)
    return _of_sequence(_sequence([part, part], recorded), suspect, fresh)


def after_others(
    suspect: Suspect, fresh: SingleWorker, *, is_probe: bool = False, has_steps: bool = True
) -> Diagnosis | None:
    """Return the diagnosis of a case, or of its probe, that is right alone, with what ran before it in its process.

    Args:
        suspect: The case.
        fresh: Runs cases in fresh processes.
        is_probe: Whether its probe is wrong.
        has_steps: Whether the candidate runs a program call by call; a compiler makes one graph of several cases.
    """
    runs = PrefixSearch(suspect, fresh).fewest()
    groups = [_group(list(group), suspect, fresh) for _, group in groupby(runs, key=lambda run: run.message)]
    noted = next((group.own for group in groups if group.own is not None), None)
    sequences = () if noted is None or not has_steps else _sequences(groups, noted, is_probe=is_probe)
    for sequence in sequences:
        found = _of_sequence(sequence, suspect, fresh)
        if found is not None:
            return found
    return _without_program(suspect, runs) if len(runs) > 1 else None


def _sequences(groups: Sequence[_Group], noted: Recording, *, is_probe: bool) -> Iterator[Recording]:
    """Yield the orders in which a worker may have made the calls of some cases, the most likely first."""
    whole = [part for group in groups for part in (*group.cases, *group.probes)]
    if is_probe:
        yield from (_sequence(group.cases, noted, repeats=True) for group in groups if group.own is not None)
        # How often a batch repeated its cases is unknown here. A kernel that counts calls may need many calls of one
        # case, or all calls twice.
        orders = [whole, [_part(noted)] * _MANY, [*whole, *whole]]
    elif probes := groups[-1].probes:
        # The case ran before the probes of its message. If judging it took a closer look, it ran again after them.
        *before, own = whole[: len(whole) - len(probes)]
        orders = [[*before, own], [*before, *probes, own]]
    else:
        orders = [whole]
    yield from (_sequence(parts, noted) for parts in orders)
    if not is_probe and len(groups[-1].cases) > 1:
        # A worker runs all forward passes of a message before any backward pass: one may overwrite what another saved.
        yield _sequence(groups[-1].cases, noted, forwards_first=True)


class _Group(NamedTuple):
    """The calls of the cases of a message.

    Attributes:
        cases: The cases' calls, in order.
        probes: The probes of the first cases of windows; a worker runs them after the cases.
        own: The wrong case, if it is one of them.
    """

    cases: list[SequencePart]
    probes: list[SequencePart]
    own: Recording | None


def _group(runs: Sequence[CaseRun], suspect: Suspect, fresh: SingleWorker) -> _Group:
    cases, probes, own = [], [], None
    probed: set[tuple[str, int]] = set()
    for run in runs:
        test, case, _ = run
        recorded = _record(test, case, suspect, fresh)
        if recorded is None:
            continue
        cases.append(_part(recorded))
        own = recorded if run.is_of(suspect) else own
        window = test.id, window_of(case)
        # As the worker does: one probe for each window, and none for case 0.
        if case and window not in probed:
            probe = _record(test, case, suspect, fresh, probe=True)
            if probe is not None:
                probed.add(window)
                probes.append(_part(probe))
    return _Group(cases, probes, own)


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
    return replace(found, note={**found.note, **NOTE})


def _part(recording: Recording) -> SequencePart:
    program = recording.program
    data = {step.target: recording.tensors[step.target] for step in program.steps if step.op == PLACEHOLDER}
    cotangents = {
        position: (spec, recording.tensors[cotangent_key(position)])
        for position, spec in program.cotangent_specs.items()
    }
    leaves = [index for index in program.inputs if f"gradient_{index}" in recording.expected]
    return SequencePart(replace(program, cotangents=()), data, cotangents, leaves)


def _sequence(
    parts: Sequence[SequencePart], noted: Recording, *, forwards_first: bool = False, repeats: bool = False
) -> Recording:
    program, data = joined(parts, forwards_first=forwards_first, repeats=repeats)
    return Recording(program, data, noted.note)


def _without_program(suspect: Suspect, runs: Sequence[CaseRun]) -> Diagnosis:
    """Return the diagnosis of a case that needs other cases before it, if no program of their calls shows it."""
    others = [run for run in runs if not run.is_of(suspect)]
    named = ", ".join(f"{run.test.name} {run.case}" for run in others[:5])
    count = "1 other case" if len(others) == 1 else f"{len(others)} other cases"
    detail = f"right alone, and wrong after {count} ({named})"
    verdict = msgspec.structs.replace(_verdict(suspect), kind="stateful")
    return Diagnosis(suspect, verdict, Route.SETTLED, is_confirmed=True, detail=detail, no_program="cases")
