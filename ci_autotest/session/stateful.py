"""Findings of kernels that remember: the fewest calls after which one is wrong that is right alone.

Each trial runs in a process of its own, because the one before has left something behind.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.case import window_of
from ci_autotest.program.call_sequence import Part, joined
from ci_autotest.program.ir import PLACEHOLDER, Program, Recording, cotangent_key
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.result import TOLERATED_BLAMES
from ci_autotest.run.messages import Record, Replay, Replayed, RunCases, Tried, TryProgram
from ci_autotest.session.made import finding_of, shown_of, with_program, write, written
from ci_autotest.session.trying import Trial, shrink

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.result import Finding
    from ci_autotest.run.fresh import Fresh
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.session.ledger import Suspect
    from ci_autotest.session.made import Workshop

#: Processes that may be started to find which cases are needed before one, and seconds that this may take.
_TRIALS_AT_MOST: Final = 60
_SECONDS_AT_MOST: Final = 20.0
#: Times that a sequence must show it, each in a fresh process.
_REPEATS: Final = 2
#: Differences of a sequence that are looked at for one whose call is right alone.
_PASSED_OVER_AT_MOST: Final = 4
#: Calls of one case: more than a worker makes of a test's cases before the next window.
_MANY: Final = 64
NOTE: Final = {"kind": "stateful"}


class _Run(NamedTuple):
    """Name a case that ran in the process, and its message: probes run after the cases of their message."""

    test: TestInfo
    case: int
    message: int


class Made(NamedTuple):
    """Say what came of a suspicion.

    Attributes:
        finding: Confirmed; ``None`` where it is none.
        is_wrong_alone: Whether the call is wrong alone too: it does not go by the calls before it.
    """

    finding: Finding | None
    is_wrong_alone: bool = False


def of_probe(suspect: Suspect, workshop: Workshop, fresh: Fresh) -> Made:
    """Return what came of a probe or a repeat that was off: its calls in a fresh process, or with what ran before.

    Every case is repeated, and few have a probe.
    """
    recorded = _recorded(suspect.test, suspect.case, suspect, fresh, attempt=suspect.attempt, probe=True)
    if recorded is not None:
        made = _of_sequence(recorded, suspect, workshop, fresh)
        if made.finding is not None or made.is_wrong_alone:
            return made
    return after_others(suspect, workshop, fresh, is_probe=True)


def twice(suspect: Suspect, workshop: Workshop, fresh: Fresh) -> Made:
    """Return what comes of a case that is run twice: wrong the second time alone, every time."""
    recorded = _recorded(suspect.test, suspect.case, suspect, fresh, attempt=suspect.attempt)
    if recorded is None:
        return Made(None)
    part = _part(recorded)
    return _of_sequence(_sequence([part, part], recorded), suspect, workshop, fresh)


def after_others(suspect: Suspect, workshop: Workshop, fresh: Fresh, *, is_probe: bool = False) -> Made:
    """Return what comes of a case, or its probe, with what ran before it in its process, where it was right alone."""
    runs = _Search(suspect, fresh, is_probe=is_probe).fewest()
    if not runs:
        return Made(None)
    groups = [_group(list(group), suspect, fresh) for _, group in groupby(runs, key=lambda run: run.message)]
    whole = [part for group in groups for part in (*group.cases, *group.probes)]
    orders = [whole]
    if not is_probe and (probes := groups[-1].probes):
        # The case ran before the probes of its message; where it was looked at closely, that ran it after them again.
        *before, own = whole[: len(whole) - len(probes)]
        orders = [[*before, own], [*before, *probes, own]]
    noted = next((group.own for group in groups if group.own is not None), None)
    if noted is None:
        return Made(_without_program(suspect, runs, workshop) if len(runs) > 1 else None)
    sequences = [_sequence(parts, noted) for parts in orders]
    if not is_probe and len(groups[-1].cases) > 1:
        # A worker runs all cases of a message forward before any goes back: what one saves another may overwrite.
        sequences.append(_sequence(groups[-1].cases, noted, forwards_first=True))
    if is_probe:
        repeats = [_sequence(group.cases, noted, repeats=True) for group in groups if group.own is not None]
        # A batch repeats more than is known here: what counts calls is reached by many of one case, or by all twice.
        many = [[_part(noted)] * _MANY, [*whole, *whole]]
        sequences = [*repeats, *sequences, *(_sequence(parts, noted) for parts in many)]
    for sequence in sequences:
        made = _of_sequence(sequence, suspect, workshop, fresh)
        if made.finding is not None or made.is_wrong_alone:
            return made
    return Made(_without_program(suspect, runs, workshop) if len(runs) > 1 else None)


class _Group(NamedTuple):
    """Hold what the cases of a message called.

    Attributes:
        cases: In order.
        probes: Of the first cases of windows; a worker runs them after the cases.
        own: The case that is wrong, where it is among them.
    """

    cases: list[Part]
    probes: list[Part]
    own: Recording | None


def _group(runs: Sequence[_Run], suspect: Suspect, fresh: Fresh) -> _Group:
    cases, probes, own = [], [], None
    probed: set[tuple[str, int]] = set()
    for test, case, _ in runs:
        recorded = _recorded(test, case, suspect, fresh)
        if recorded is None:
            continue
        cases.append(_part(recorded))
        own = recorded if _is_own(test, case, suspect) else own
        window = test.id, window_of(case)
        if case and window not in probed:
            probe = _recorded(test, case, suspect, fresh, probe=True)
            if probe is not None:
                probed.add(window)
                probes.append(_part(probe))
    return _Group(cases, probes, own)


def _is_own(test: TestInfo, case: int, suspect: Suspect) -> bool:
    return (test.id, case) == (suspect.test.id, suspect.case)


def _of_sequence(recording: Recording, suspect: Suspect, workshop: Workshop, fresh: Fresh) -> Made:
    """Return the finding of a sequence of calls that is wrong each time, and whose last call is right alone."""
    passed_over: list[int] = []
    for _ in range(_PASSED_OVER_AT_MOST):
        answer = _try(recording, suspect, fresh, passed_over)
        if answer is None or answer.verdict.outcome != "misaligned":
            return Made(None, is_wrong_alone=bool(passed_over))
        if _is_right_alone(answer, suspect, fresh):
            break
        # Its values suit no call, or rounding decides: what comes after it may be wrong for another reason.
        passed_over.append(answer.verdict.step)
    else:
        return Made(None, is_wrong_alone=True)
    shown, step = shown_of(answer), answer.verdict.step
    for _ in range(_REPEATS - 1):
        again = _try(recording, suspect, fresh, passed_over)
        if again is None or again.verdict.step != step or not _is_right_alone(again, suspect, fresh):
            return Made(None)  # What is wrong by chance is wrong elsewhere the next time.
    finding = msgspec.structs.replace(finding_of(suspect, shown.verdict, workshop), confirmed=True)
    write(finding, shown.recording, workshop)
    best = shrink(shown, Trial(suspect, fresh, is_sequence=True))
    found = msgspec.structs.replace(finding_of(suspect, best.verdict, workshop), confirmed=True, shrunk=True)
    return Made(written(with_program(found, best.recording, workshop), best.recording, workshop, suspect.test))


def _try(recording: Recording, suspect: Suspect, fresh: Fresh, passed_over: Sequence[int] = ()) -> Tried | None:
    """Run a program in a process that has run nothing."""
    fresh.close()
    answer = fresh.ask(
        TryProgram(
            program=encode_program(recording), tensors=encode_tensors(recording), candidate=suspect.candidate,
            test=suspect.test, passed_over=list(passed_over),
        )
    )  # fmt: skip
    return answer if isinstance(answer, Tried) else None


def _is_right_alone(answer: Tried, suspect: Suspect, fresh: Fresh) -> bool:
    """Whether the call that is wrong after others is aligned, without any excuse, where it is the only one."""
    single = decode(answer.alone_program, answer.alone_tensors)
    alone = _try(single, suspect, fresh)
    return alone is not None and alone.verdict.outcome == "aligned" and alone.verdict.kind is None


def _recorded(
    test: TestInfo, case: int, suspect: Suspect, fresh: Fresh, attempt: int | None = None, *, probe: bool = False
) -> Recording | None:
    """Return a case's program, or its probe, as the reference records it."""
    answer = fresh.ask(Record(test=test, case=case, attempt=attempt, candidate=suspect.candidate, probe=probe))
    if not isinstance(answer, Tried) or not answer.program:
        return None
    found = decode(answer.program, answer.tensors)
    return replace(found, note={**found.note, **NOTE})


def _part(recording: Recording) -> Part:
    program = recording.program
    data = {step.target: recording.tensors[step.target] for step in program.steps if step.op == PLACEHOLDER}
    cotangents = {
        position: (spec, recording.tensors[cotangent_key(position)])
        for position, spec in enumerate(program.cotangents)
        if spec is not None
    }
    leaves = [
        index
        for index, step in enumerate(program.steps)
        if step.op == PLACEHOLDER and f"gradient_{index}" in recording.expected
    ]
    return Part(Program(program.setup, program.body), data, cotangents, leaves)


def _sequence(
    parts: Sequence[Part], noted: Recording, *, forwards_first: bool = False, repeats: bool = False
) -> Recording:
    program, data = joined(parts, forwards_first=forwards_first, repeats=repeats)
    return Recording(program, data, noted.note)


def _without_program(suspect: Suspect, runs: Sequence[_Run], workshop: Workshop) -> Finding:
    """Return the finding of a case that needs others before it, where their calls in one program do not show it."""
    verdict = suspect.verdict
    assert verdict is not None  # noqa: S101 - of a case that was not aligned
    found = finding_of(suspect, msgspec.structs.replace(verdict, kind="stateful"), workshop)
    others = [run for run in runs if not _is_own(run.test, run.case, suspect)]
    named = ", ".join(f"{run.test.name} {run.case}" for run in others[:5])
    count = "1 other case" if len(others) == 1 else f"{len(others)} other cases"
    detail = f"alone it is right: it needs {count} to run before it ({named})"
    return msgspec.structs.replace(found, confirmed=True, detail=detail, message=f"{found.message}\n  {detail}")


class _Search:
    """Search for the fewest cases that must run before one for it, or its probe, to be wrong."""

    def __init__(self, suspect: Suspect, fresh: Fresh, *, is_probe: bool) -> None:
        self._suspect, self._fresh, self._is_probe = suspect, fresh, is_probe
        self._left = _TRIALS_AT_MOST
        self._end = time.monotonic() + _SECONDS_AT_MOST

    def fewest(self) -> list[_Run]:
        """Return the cases that are needed, the one that is wrong among them; none where it stays right.

        Alone it may be wrong here each time and right elsewhere: a worker calls its probe too.
        """
        runs = list(self._before())
        if len(runs) < 2 or not self._shows(runs):  # noqa: PLR2004 - one beside its own
            return []
        size = len(runs) // 2
        while size and self._left > 0 and time.monotonic() < self._end:
            runs = self._without_parts(runs, size)
            size //= 2
        # What is wrong by chance shows now and then, after these and alone.
        own = [run for run in runs if _is_own(run.test, run.case, self._suspect)]
        if not all(self._shows(runs) for _ in range(_REPEATS)):
            return []
        return runs if runs == own or not any(self._shows(own) for _ in range(_REPEATS)) else []

    def _without_parts(self, runs: list[_Run], size: int) -> list[_Run]:
        at = 0
        while at < len(runs) and self._left > 0 and time.monotonic() < self._end:
            shorter = [
                run
                for position, run in enumerate(runs)
                if not at <= position < at + size or _is_own(run.test, run.case, self._suspect)
            ]
            if len(shorter) < len(runs) and self._shows(shorter):
                runs = shorter
            else:
                at += size
        return runs

    def _before(self) -> Iterator[_Run]:
        """Yield the cases that ran in the process, to the end of the message of the one that is wrong.

        Cases after it may count: those of a message run forward before any goes back, and probes after all of them.
        """
        for number, message in enumerate(self._suspect.before):
            for case in message.cases:
                yield _Run(message.test, case, number)
            if any(_is_own(message.test, case, self._suspect) for case in message.cases):
                return

    def _shows(self, runs: Sequence[_Run]) -> bool:
        """Whether the case is wrong after these, in a process that has run nothing else."""
        self._left -= 1
        suspect = self._suspect
        groups = [list(group) for _, group in groupby(runs, key=lambda run: run.message)]
        messages = [
            RunCases(test=group[0].test, cases=[run.case for run in group], candidates=[suspect.candidate])
            for group in groups
        ]
        self._fresh.close()
        answer = self._fresh.ask(Replay(candidate=suspect.candidate, runs=messages))
        wanted = suspect.verdict
        return isinstance(answer, Replayed) and any(
            (test, failure.case) == (suspect.test.id, suspect.case)
            and wanted is not None
            and (failure.verdict.operator, failure.verdict.kind) == (wanted.operator, wanted.kind)
            and failure.verdict.blame not in TOLERATED_BLAMES
            for test, failure in answer.failures
        )
