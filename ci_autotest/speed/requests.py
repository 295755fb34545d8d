"""Requests to time a case: draw it at larger sizes, compare it there, and time it only if it is aligned."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.alignment.cases import differentiate, try_case
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.case_scope import without_gradients
from ci_autotest.backends.devices import available_device
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import error_text
from ci_autotest.program.codegen import names
from ci_autotest.program.hook_names import kept_names
from ci_autotest.program.ir import REGISTERS
from ci_autotest.program.refusal import refusals
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.record.draw.profiles import LARGE_SHAPES, ORDINARY
from ci_autotest.run.messages import Measured
from ci_autotest.run.worker.context import REFERENCE
from ci_autotest.speed.body_sides import sides_of
from ci_autotest.speed.paired_ratio import paired_ratio, speed_verdict
from ci_autotest.speed.timing import LONGEST_S, measured
from ci_autotest.values.case import ATTEMPTS_PER_CASE, test_key
from ci_autotest.values.finding import TOLERATED_BLAMES
from ci_autotest.values.speed import SpeedResult, SpeedVerdict

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Program
    from ci_autotest.run.messages import Measure
    from ci_autotest.run.progress_beacon import ProgressBeacon
    from ci_autotest.run.worker.context import WorkerContext
    from ci_autotest.speed.body_sides import BodySides
    from ci_autotest.values.verdict import Verdict

#: Attempts at larger sizes before the test's own sizes are taken.
_LARGE_ATTEMPTS: Final = 2


_REJECTED: Final = "the reference rejected every attempt"
_REFUSES: Final = "its body expects an error"
_HOOKS: Final = "its body registers hooks"
_LONG: Final = f"a call of both sides takes longer than {LONGEST_S:.0f} s at these sizes"
_NO_CALL: Final = "its backend has no call of a whole body that could be timed"
_WRITES: Final = "its body writes to its inputs, so that each call gets other ones"


class _Untimed(Exception):  # noqa: N818 - a result, not an error
    """Ends a request without times.

    Args:
        reason: Why.
        verdict: What is reported.
        difference: What differs, as fields of the result.
    """

    def __init__(self, reason: str, verdict: SpeedVerdict = "not_timed", **difference: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.verdict: SpeedVerdict = verdict
        self.difference = difference


class SpeedRequests:
    """Answer the requests.

    Args:
        worker_context: The tests and the backends.
        beacon: Where the worker reports the case in flight.
    """

    def __init__(self, worker_context: WorkerContext, beacon: ProgressBeacon) -> None:
        self._worker_context = worker_context
        self._beacon = beacon

    def answer(self, message: Measure) -> Measured:
        """Time a case forward and backward, or say why not."""
        fields: dict[str, Any] = {
            "test": message.test.id, "candidate": message.candidate, "case": message.case,
        }  # fmt: skip
        try:
            attempt = self._attempt(message)
            fields |= {"operators": _operators(attempt.program), "inputs": _inputs(attempt.program)}
            # Another case with the same inputs was timed before, and its times stand for this one.
            if fields["inputs"] in message.known:
                return Measured(results=[])
            calls = self._calls(attempt, message)
            if message.keeps_program:
                recording = to_recording(live_of(attempt))
                return Measured(results=[], program=encode_program(recording), tensors=encode_tensors(recording))
            fields["against"] = "original" if calls.is_original else "reference"
            return Measured(results=[SpeedResult(**fields, **timed) for timed in self._timed(calls, message)])
        except _Untimed as untimed:
            fields |= untimed.difference
            result = SpeedResult(**fields, phase="forward", verdict=untimed.verdict, reason=untimed.reason)
            return Measured(results=[result])

    def _attempt(self, message: Measure) -> Attempt:
        """Return the first attempt that the reference accepts, at larger sizes if it accepts any of these."""
        context = self._worker_context
        declaration, call = context.test(message.test)
        key = test_key(context.hello.seed, message.test.id)
        self._beacon.enter(message.case, REFERENCE)
        for number in range(ATTEMPTS_PER_CASE):
            profile = LARGE_SHAPES if number < _LARGE_ATTEMPTS else ORDINARY
            name = (key, message.test.id, message.case, number)
            attempt = context.attempts.attempt(declaration, call, name, profile=profile)
            if attempt.is_complete:
                return attempt
        raise _Untimed(_REJECTED)

    def _calls(self, attempt: Attempt, message: Measure) -> BodySides:
        context = self._worker_context
        declaration, _ = context.test(message.test)
        contender = context.contender(message.candidate, declaration)
        self._refuse(attempt, message.candidate)
        differentiate(attempt, context.reference)
        self._beacon.enter(message.case, 0)
        verdict = try_case(attempt, contender, context.reference).verdict
        # The time of a wrong result says nothing about the candidate's speed.
        if verdict.outcome != "aligned":
            raise _differing(verdict)
        try:
            live = live_of(attempt)
            if not contender.backend.case_scope.is_trained:  # Then the reference is timed without gradients, too.
                live = live._replace(program=without_gradients(attempt.program), cotangents={})
            found = sides_of(live, contender.backend, context.reference)
        except FOREIGN as error:
            pass_interrupt(error)
            reason = f"its body does not run as one function: {error_text(error)}"
            raise _Untimed(reason) from error
        if found is None:
            raise _Untimed(_NO_CALL)
        if found.writes:
            raise _Untimed(_WRITES)
        return found

    def _refuse(self, attempt: Attempt, candidate: str) -> None:
        """Refuse what cannot be timed before anything runs."""
        context, steps = self._worker_context, attempt.program.steps
        info = next(info for info in context.infos if info.name == candidate)
        device = available_device(context.hello.reference_device)
        if info.device != device:
            reason = (
                f"it runs on {info.device} and the reference on {device}, whose times do not compare. "
                "Write reference: {device: auto}."
            )
            raise _Untimed(reason)
        if refusals(steps):
            raise _Untimed(_REFUSES)
        if kept_names(steps, names(attempt.program)) or any(REGISTERS[0] in step.modes for step in steps):
            raise _Untimed(_HOOKS)

    def _timed(self, calls: BodySides, message: Measure) -> list[dict[str, Any]]:
        found = measured(calls.candidate, calls.reference, message.seed, lambda: self._beacon.enter(message.case, 0))
        if not found.forward:
            raise _Untimed(_LONG)
        return [
            _fields("forward", found.forward),
            *([_fields("backward", found.backward)] if found.backward else []),
        ]


def _fields(phase: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    ratio = paired_ratio(pairs)
    candidate_s, reference_s = (median(pair[side] for pair in pairs) for side in (0, 1))
    slow = "" if ratio is not None else f"a call takes so long that only {len(pairs)} pairs were timed"
    return {
        "phase": phase, "verdict": speed_verdict(ratio, reference_s), "reason": slow, "ratio": ratio,
        "candidate_s": candidate_s, "reference_s": reference_s,
    }  # fmt: skip


def _differing(verdict: Verdict) -> _Untimed:
    """Return why a case that is not aligned at these sizes is not timed; it fails the run if the candidate is wrong."""
    if verdict.outcome == "misaligned" and verdict.blame not in TOLERATED_BLAMES and verdict.kind != "leniency":
        difference = {"operator": verdict.operator, "target": verdict.target, "kind": verdict.kind}
        return _Untimed(f"{verdict.operator} is misaligned at these sizes ({verdict.kind})", "misaligned", **difference)
    if verdict.outcome == "misaligned":
        return _Untimed(f"{verdict.operator} differs at these sizes, and the candidate is not to blame")
    return _Untimed(f"{verdict.outcome.replace('_', ' ')} at these sizes")


def _operators(program: Program) -> tuple[str, ...]:
    return tuple(dict.fromkeys(step_operator(step, program.steps) for _, step in program.calls))


def _inputs(program: Program) -> tuple[str, ...]:
    return tuple(f"{spec.dtype}{list(spec.shape)}" for step in program.steps if (spec := step.spec) is not None)
