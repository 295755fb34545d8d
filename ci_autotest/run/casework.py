"""Cases, run in a worker: attempts in batches, phase by phase, each on every candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.alignment.cases import (
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
from ci_autotest.backends.remote import RemoteBackend
from ci_autotest.case import test_key
from ci_autotest.errors import AuthorError, said
from ci_autotest.judgement import Misalignment, Verdict
from ci_autotest.run.equipment import REFERENCE, Equipment
from ci_autotest.run.gpu import retire_if_spoiled
from ci_autotest.run.messages import (
    CaseFailure,
    CasesDone,
    RunCases,
)
from ci_autotest.run.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.run.place import Place

#: Seconds between two parts of an answer to ``RunCases``.
_PART_S: Final = 0.5
#: Cases whose phases are run together.
BATCH: Final = 16


class _Batch(NamedTuple):
    """Some cases of a test, its candidates, and their positions."""

    test: str
    cases: list[int]
    order: Mapping[str, int]
    contenders: Mapping[str, Contender]


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

        for start in range(0, len(message.cases), BATCH):
            if tally.duration_s > _PART_S:
                self._send(tally.message(last=False))
                tally = Tally(self._census)
            batch = _Batch(message.test.id, message.cases[start : start + BATCH], order, contenders)
            self._equipment.attempts.prefetch(key, batch.cases)
            try:
                self._batch(batch, draw, tally)
            except Exception:
                retire_if_spoiled(self._equipment.devices)
                raise
        return tally.message(last=True)

    def _batch(self, batch: _Batch, draw: Callable[[int, int], Attempt], tally: Tally) -> None:
        """Run a few cases phase by phase: each phase's code stays warm, and the outcomes are those of one by one."""
        place = self._place
        accepted = []
        for case in batch.cases:
            place.enter(case, REFERENCE, 0)
            attempt, number = draw(case, 0), 0
            if attempt.refused is not None:
                attempt, number = self._again(case, attempt, batch, draw, tally)
            if attempt.refused is None:
                accepted.append((case, number, attempt))
        tally.accepted(batch.cases, accepted)
        for case, number, attempt in accepted:
            place.enter(case, REFERENCE, number)
            differentiate(attempt, self._equipment.reference)
            tally.undefined += attempt.trace.backward_failure is not None
        for name, contender in batch.contenders.items():
            self._contend(accepted, (batch.test, name), contender, batch.order[name], tally)

    def _again(
        self, case: int, refused: Attempt, batch: _Batch, draw: Callable[[int, int], Attempt], tally: Tally
    ) -> tuple[Attempt, int]:
        """Draw a case again whose first attempt the reference refused; try on the candidates what it refuses."""
        positions = {"": REFERENCE, **batch.order}

        def enter(case: int, name: str, number: int) -> None:
            self._place.enter(case, positions[name], number)

        found = accept(case, lambda case, number: draw(case, number) if number else refused, batch.contenders, enter)
        tally.rejected(found)
        for name, judged in found.lenient.items():
            tally.failures.append(_failure(case, found.number, name, judged.verdict, "ordinary"))
        return found.attempt or refused, found.number

    def _contend(
        self,
        accepted: list[tuple[int, int, Attempt]],
        pair: tuple[str, str],
        contender: Contender,
        position: int,
        tally: Tally,
    ) -> None:
        """Run every phase of one candidate over the accepted attempts of a batch."""
        test, name = pair
        place, backend = self._place, contender.backend
        if isinstance(backend, RemoteBackend) and accepted:
            self._at(accepted[0], position)
            backend.ahead([attempt for _, _, attempt in accepted], lambda i: self._at(accepted[i], position))
        traces = []
        for case, number, attempt in accepted:
            place.enter(case, position, number)
            traces.append(go_forward(attempt, contender))
        for (case, number, attempt), trace in zip(accepted, traces, strict=True):
            place.enter(case, position, number)
            go_back(attempt, contender, trace)
        aligned = 0
        outcomes: list[bool | None] = []
        for (case, number, attempt), trace in zip(accepted, traces, strict=True):
            place.enter(case, position, number)
            verdict = self._judged(attempt, contender, trace)
            if verdict is None:
                aligned += 1
                outcomes.append(True)
                continue
            outcomes.append(None if verdict.outcome == "unsupported" else verdict.outcome == "aligned")
            tally.judged(name, verdict)
            if verdict.kind is None:
                self._watch(test, attempt)
            else:
                retire_if_spoiled(self._equipment.devices)
                tally.failures.append(_failure(case, number, name, verdict, attempt.profile))
        tally.aligned(name, aligned)
        tally.covered(name, outcomes)
        tally.saw(name, backend)

    def _at(self, accepted: tuple[int, int, Attempt], position: int) -> None:
        """Say which accepted attempt is tried on the candidate at a position."""
        case, number, _ = accepted
        self._place.enter(case, position, number)

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

    def _watch(self, test: str, attempt: Attempt) -> None:
        """Remember which values a test's steps write to: copied in later cases, they need no second run."""
        if not attempt.program.setup:
            self._overwritten[test] = self._overwritten.get(test, frozenset()) | overwritten(attempt.trace)


def _failure(case: int, attempt: int, candidate: str, verdict: Verdict, profile: str) -> CaseFailure:
    return CaseFailure(case=case, attempt=attempt, candidate=candidate, verdict=verdict, profile=profile)
