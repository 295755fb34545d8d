"""Cases, run in a worker: attempts in batches, phase by phase, each on every candidate."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ci_autotest.alignment.abreast import can_contend, contend
from ci_autotest.alignment.abroad import vouched as seen_abroad
from ci_autotest.alignment.cases import (
    Accepted,
    Contender,
    accept,
    differentiate,
    go_back,
    go_forward,
    is_aligned,
    judge_case,
)
from ci_autotest.alignment.quick import overwritten
from ci_autotest.backends.census import Census
from ci_autotest.backends.hosting import HostLostError
from ci_autotest.backends.operators import spelled, step_operator
from ci_autotest.backends.placing import CPU
from ci_autotest.backends.remote import RemoteBackend
from ci_autotest.case import test_key
from ci_autotest.errors import AuthorError, said
from ci_autotest.judgement import Misalignment, Verdict
from ci_autotest.run.batch import Batch, Begun
from ci_autotest.run.equipment import REFERENCE, Equipment
from ci_autotest.run.gpu import retire_if_spoiled
from ci_autotest.run.memory import Footprint, collect
from ci_autotest.run.messages import CaseFailure, CasesDone, RunCases
from ci_autotest.run.tally import Tally
from ci_autotest.run.templates import MANY, Templates
from ci_autotest.run.work import Together, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.place import Entering, Place

#: Seconds between two parts of an answer to ``RunCases``.
_PART_S: Final = 0.5
#: Cases whose phases are run together: at most as many as a long task has.
BATCH: Final = 80
#: The same where bodies are run for each, which holds more than fits the processor's cache, and where a host runs them:
#: while it does, the next are begun.
_FEW: Final = 32
#: Memory that the batches held may take, as far as the cases of the test so far say.
_BATCH_BYTES: Final = 1 << 28


class Casework:
    """Run cases.

    Args:
        equipment: What is worked with.
        place: Where the case in flight is told.
        send: Sends a part of an answer before the answer is complete.
    """

    def __init__(self, equipment: Equipment, place: Place, send: Callable[[CasesDone], None]) -> None:
        """Run nothing yet."""
        self._equipment = equipment
        self._place = place
        self._send = send
        self._overwritten: dict[str, frozenset[int]] = {}
        self._footprints: dict[str, Footprint] = {}
        self._templates = Templates(equipment, place)
        self._census = Census()

    def run(self, message: RunCases) -> CasesDone:
        """Run cases of a test, and return their outcomes."""
        self._place.enter(REFERENCE, REFERENCE)
        declaration, call = self._equipment.test(message.test)
        contenders = {name: self._equipment.contender(name, declaration) for name in message.candidates}
        order = {name: i for i, name in enumerate(message.candidates)}
        key = test_key(self._equipment.hello.seed, message.test.id)
        tally = Tally(self._census)

        def draw(case: int, number: int) -> Attempt:
            watched = self._overwritten.get(message.test.id, frozenset())
            return self._equipment.attempts.attempt(
                declaration, call, (key, message.test.id, case, number), watched=watched
            )

        left, is_long, waiting = message.cases, len(message.cases) >= MANY, deque[Begun]()
        ahead = int(any(isinstance(one.backend, RemoteBackend) for one in contenders.values()))
        try:
            while left or waiting:
                if left:
                    cases = self._next(message.test.id, left, ahead)
                    left = left[len(cases) :]
                    self._equipment.attempts.prefetch(key, cases)
                    drawn = self._drawn(message.test, cases, is_long=is_long)
                    waiting.append(self._begun(Batch(message.test.id, cases, order, contenders), drawn, draw))
                    self._give(waiting[-1])
                if len(waiting) > ahead or not left:
                    self._end(waiting.popleft(), tally)
                    if tally.duration_s > _PART_S and (left or waiting):
                        self._send(tally.message(last=False))
                        tally = Tally(self._census)
                    collect()
        except Exception:
            retire_if_spoiled(self._equipment.devices)
            raise
        finally:
            for contender in contenders.values():
                if isinstance(contender.backend, RemoteBackend):
                    with suppress(HostLostError):
                        contender.backend.settle()
        return tally.message(last=True)

    def _next(self, test: str, cases: list[int], ahead: int) -> list[int]:
        """Return the next cases that run together: few of large tensors, and of a new test the first alone.

        The first shows what the test's steps write to. Batches that are ``ahead`` share the memory with this one. All
        are of one size, for a short one costs what a long one does before its first case.
        """
        if test not in self._overwritten:
            return cases[:1]
        most = BATCH if self._templates.knows(test) and not ahead else min(BATCH, _FEW)
        room = self._footprints.get(test, Footprint()).fit(_BATCH_BYTES // (1 + ahead), most)
        return cases[: -(-len(cases) // -(-len(cases) // room))]

    def _drawn(self, test: TestInfo, cases: Sequence[int], *, is_long: bool) -> list[Together]:
        """Return those of some cases whose body need not be run."""
        watched = self._overwritten.get(test.id)
        if watched is None or self._equipment.reference.device is not CPU:
            return []
        return self._templates.drawn(test, cases, watched, pays=is_long or cases[0] >= MANY)

    def _begun(self, batch: Batch, drawn: Sequence[Together], draw: Callable[[int, int], Attempt]) -> Begun:
        """Run a few cases on the reference, phase by phase: each phase's code stays warm."""
        refused: list[tuple[int, Accepted]] = []
        recorded: dict[int, tuple[int, Attempt]] = {}
        for case in sorted(set(batch.cases).difference(*(cases.values() for cases, _ in drawn))):
            self._place.enter(case, REFERENCE, 0)
            attempt, number = draw(case, 0), 0
            if attempt.refused is not None:
                found = self._again(case, attempt, batch, draw)
                refused.append((case, found))
                attempt, number = found.attempt or attempt, found.number
            if attempt.refused is None:
                recorded[case] = number, self._learned(batch.test, attempt) or draw(case, number)
        work = Work(drawn, recorded)
        if self._equipment.reference.device is CPU:
            work.form()
        undefined = self._differentiate(work)
        if work.spots:
            self._footprints[batch.test] = self._footprints.get(batch.test, Footprint()) + work.footprint()
        return Begun(batch, work, refused, undefined)

    def _give(self, begun: Begun) -> None:
        """Give hosts a batch, so that they run it while what was given before is looked at."""
        batch, work = begun.batch, begun.work
        for name, contender in batch.contenders.items():
            if isinstance(contender.backend, RemoteBackend) and work.spots:
                enter = self._place.entering(batch.order[name], work.spots)
                enter(0)
                contender.backend.ahead([work.attempt(at) for at in range(len(work.spots))], enter, self._place.lent)

    def _end(self, begun: Begun, tally: Tally) -> None:
        """Run a batch on its candidates, and count what came of it."""
        batch, work = begun.batch, begun.work
        for case, found in begun.refused:
            tally.rejected(found)
            for name, judged in found.lenient.items():
                tally.failures.append(_failure(case, found.number, name, judged.verdict, "ordinary"))
        tally.accepted(batch.cases, work.profiles(), work.forms(self._census))
        tally.undefined += begun.undefined
        for name, contender in batch.contenders.items():
            self._contend(work, (batch.test, name), contender, batch.order[name], tally)

    def _differentiate(self, work: Work) -> int:
        """Run the backward passes of the reference; return how many are undefined."""
        alone, undefined = list(work.alone), 0
        for positions, lockstep in work.locksteps:
            lockstep.backward(lockstep.reference, self._entering(work, positions, REFERENCE), is_torchs_own=True)
            undefined += len(lockstep.reference.left)
        for position in alone:
            case, number = work.spots[position]
            self._place.enter(case, REFERENCE, number)
            attempt = work.attempt(position)
            differentiate(attempt, self._equipment.reference)
            undefined += attempt.trace.backward_failure is not None
        return undefined

    def _entering(self, work: Work, positions: Mapping[int, int], candidate: int) -> Entering:
        """Return what tells the parent which case of a lockstep is entered."""
        return self._place.entering(candidate, {one: work.spots[position] for one, position in positions.items()})

    def _again(self, case: int, refused: Attempt, batch: Batch, draw: Callable[[int, int], Attempt]) -> Accepted:
        """Draw a case again whose first attempt the reference refused; try on the candidates what it refuses."""
        positions = {"": REFERENCE, **batch.order}

        def enter(case: int, name: str, number: int) -> None:
            self._place.enter(case, positions[name], number)

        return accept(case, lambda case, number: draw(case, number) if number else refused, batch.contenders, enter)

    def _contend(self, work: Work, pair: tuple[str, str], contender: Contender, order: int, tally: Tally) -> None:
        """Run every phase of one candidate over the accepted attempts of a batch."""
        test, name = pair
        vouched, traces = self._run(work, contender, order)
        outcomes: list[bool | None] = [True] * len(work.spots)
        for position in sorted(traces):
            case, number = work.spots[position]
            self._place.enter(case, order, number)
            attempt = work.attempt(position)
            verdict = self._judged(attempt, contender, traces[position])
            if verdict is None:
                vouched.add(position)
                continue
            outcomes[position] = None if verdict.outcome == "unsupported" else verdict.outcome == "aligned"
            tally.judged(name, verdict)
            if verdict.kind is None:
                self._watch(test, attempt)
            else:
                retire_if_spoiled(self._equipment.devices)
                tally.failures.append(_failure(case, number, name, verdict, attempt.profile))
        tally.aligned(name, len(vouched))
        tally.covered(name, outcomes)
        tally.saw(name, contender.backend)

    def _run(self, work: Work, contender: Contender, order: int) -> tuple[set[int], dict[int, Trace]]:
        """Return the positions of cases for which a quick look vouches already, and the traces of all others."""
        vouched: set[int] = set()
        traces: dict[int, Trace] = {}
        alone: Sequence[int] = range(len(work.spots))
        if can_contend(contender):
            alone = work.alone
            for positions, lockstep in work.locksteps:
                good, others = contend(lockstep, contender, self._entering(work, positions, order))
                vouched.update(positions[one] for one in good)
                traces.update({positions[one]: trace for one, trace in others.items()})
        enter = self._place.entering(order, work.spots)
        attempts = {position: work.attempt(position) for position in alone}
        for position in seen_abroad(attempts, contender):
            vouched.add(position)
            del attempts[position]
        for position, attempt in attempts.items():
            enter(position)
            traces[position] = go_forward(attempt, contender)
        for position, attempt in attempts.items():
            enter(position)
            go_back(attempt, contender, traces[position])
        return vouched, traces

    def _judged(self, attempt: Attempt, contender: Contender, trace: Trace) -> Verdict | None:
        """Return the verdict on a case, ``None`` where a quick look vouches for it.

        A result that cannot even be looked at is the candidate's error, and costs no other candidate its case.
        """
        try:
            if is_aligned(attempt, contender, trace):
                return None
            return judge_case(attempt, contender, self._equipment.reference, trace).verdict
        except (AuthorError, HostLostError):
            raise
        except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
            last = len(attempt.program.steps) - 1
            step = attempt.program.calls[-1][1] if attempt.program.calls else attempt.program.steps[last]
            told = f"{type(error).__name__}: {said(error)}"
            misalignment = Misalignment(
                kind="error",
                step=last,
                what="result",
                candidate="cannot be read",
                reference="returns",
                detail=told[:2000],
            )
            return Verdict(
                outcome="misaligned", operator=step_operator(step, attempt.program.steps), target=spelled(step),
                kind="error", blame="candidate", step=last, misalignment=misalignment,
                oracle="what the candidate returned cannot be compared",
            )  # fmt: skip

    def _learned(self, test: str, attempt: Attempt) -> Attempt | None:
        """Return an accepted attempt; ``None`` where it is to be drawn again, with copies of what its steps write to.

        Said of the first attempt at a test only: the others begin with the copies.
        """
        if test in self._overwritten:
            return attempt
        self._overwritten[test] = frozenset()
        self._watch(test, attempt)
        return attempt if not self._overwritten[test] else None

    def _watch(self, test: str, attempt: Attempt) -> None:
        """Remember which values a test's steps write to: copied in later cases, they need no second run."""
        if not attempt.program.setup:
            self._overwritten[test] = self._overwritten.get(test, frozenset()) | overwritten(attempt.trace)


def _failure(case: int, attempt: int, candidate: str, verdict: Verdict, profile: str) -> CaseFailure:
    return CaseFailure(case=case, attempt=attempt, candidate=candidate, verdict=verdict, profile=profile)
