"""Requests about one finding: run a case again, record it, or try a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.alignment.accepted import judged_beyond, rules_beyond
from ci_autotest.alignment.cases import accept, accepts_of, differentiate
from ci_autotest.alignment.differences import Examination
from ci_autotest.alignment.localize import weights_of
from ci_autotest.alignment.probe import probe_of
from ci_autotest.alignment.recordings import shown_recording, to_live, to_recording
from ci_autotest.alignment.repeatability import judge_confirmed
from ci_autotest.alignment.single_step import inlined, isolate, pruned
from ci_autotest.alignment.stateful import alone, judge_sequence
from ci_autotest.alignment.verdict import Judged, judge_program, live_of
from ci_autotest.backends.operators.identity import spelled, step_operator
from ci_autotest.backends.protocol import out_of_scope, run_forward
from ci_autotest.backends.torch_steps import resolve
from ci_autotest.backends.trace import Attempt
from ci_autotest.errors import AuthorError
from ci_autotest.program.edit import maker_of
from ci_autotest.program.ir import CALL_FUNCTION, output_refs
from ci_autotest.program.note import Note
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.program.targets import is_own
from ci_autotest.record.declaration import Declaration
from ci_autotest.run.messages import Confirm, Record, Tried, TryProgram
from ci_autotest.run.worker.context import REFERENCE, WorkerContext
from ci_autotest.values.case import test_key
from ci_autotest.values.schedule import RowName, asks
from ci_autotest.values.verdict import Verdict, unsupported_verdict

if TYPE_CHECKING:
    from ci_autotest.alignment.cases import Contender
    from ci_autotest.alignment.examination import TrialSides
    from ci_autotest.alignment.single_step import Live
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.errors import Unsupported
    from ci_autotest.program.recording import Recording
    from ci_autotest.run.progress_beacon import ProgressBeacon


class FindingRequests:
    """Answer the requests.

    Args:
        worker_context: The tests and the backends.
        beacon: Where the worker reports the case in flight.
    """

    def __init__(self, worker_context: WorkerContext, beacon: ProgressBeacon) -> None:
        self._worker_context = worker_context
        self._beacon = beacon

    def confirm(self, message: Confirm) -> Tried:
        """Run one attempt on one candidate again, with edited draws, and return its program."""
        declaration, call = self._worker_context.test(message.test)
        contender = self._contender(message, declaration)
        self._beacon.enter(message.case, REFERENCE)
        key = test_key(self._worker_context.hello.seed, message.test.id)
        name = (key, message.test.id, message.case, message.attempt)
        attempt = self._worker_context.attempts.attempt(declaration, call, name, message.edits, message.profile)
        note = Note(draws=[list(draw) for draw in attempt.draws], profile=attempt.profile, attempt=message.attempt)
        outside = out_of_scope(contender.backend, attempt)
        live = live_of(contender.backend.adapted(attempt))
        if outside is not None:
            return self._outside(
                message.candidate, outside, live, contender, draws=attempt.draws, profile=attempt.profile
            )
        self._beacon.enter(message.case, 0)
        judge = judge_confirmed if message.twice else judge_program
        beyond = judged_beyond(live, self._watched(contender), accepts_of(attempt, contender), judge, message.wanted)
        whole = to_recording(live, note)
        return self._answer(
            message.candidate, beyond.judged, beyond.sides.rules,
            whole_program=encode_program(whole), whole_tensors=encode_tensors(whole),
            draws=attempt.draws, profile=attempt.profile, attempt=message.attempt,
        )  # fmt: skip

    def _contender(self, message: Confirm | TryProgram, declaration: Declaration | None) -> Contender:
        found = self._worker_context.contender(
            message.candidate, declaration, message.compiler, asks_float64=message.asks_float64
        )
        # As in the run: with bands, a kernel may fail in another way, and that would pass for flaky. A program that
        # was found with bands has them in it.
        is_banded = isinstance(message, Confirm) and message.has_guard and asks(RowName.GUARD, message.case)
        is_checked = isinstance(message, Confirm) and asks(RowName.OPERATORS, message.case)
        return found._replace(
            has_guard=found.has_guard and is_banded, checks_operators=found.checks_operators and is_checked
        )

    def _watched(self, contender: Contender) -> TrialSides:
        """Return both sides; the candidate reports each step to the parent."""
        contender.backend.on_step = self._beacon.step
        return contender.beside(self._worker_context.reference)

    def record(self, message: Record) -> Tried:
        """Record a case, or one step of it, on the reference alone."""
        declaration, call = self._worker_context.test(message.test)
        key = test_key(self._worker_context.hello.seed, message.test.id)
        self._beacon.enter(message.case, REFERENCE)

        def draw(case: int, number: int) -> Attempt:
            name = (key, message.test.id, case, number)
            return self._worker_context.attempts.attempt(declaration, call, name, message.edits, message.profile)

        number = message.attempt if message.attempt is not None else 0
        attempt: Attempt | None = draw(message.case, number)
        # The worker was lost before its attempt was known: draw until the reference accepts one.
        if message.attempt is None:
            found = accept(message.case, draw, {}, lambda _case, _name, _number: None)
            attempt, number = found.attempt, found.number
        if attempt is None or attempt.assumption or attempt.skipped:
            text = f"case {message.case} of {message.test.id} has no accepted attempt."
            raise AuthorError(text)
        if attempt.refused is not None:
            return self._record_refused(attempt, message, number)
        contender = self._worker_context.contender(message.candidate, declaration)
        attempt = contender.backend.adapted(attempt)
        live = live_of(attempt if not message.probe else self._probe(attempt, contender, message.case))
        step = message.step if message.step is not None else live.program.calls[-1][0]
        if message.step is not None:
            live = self._isolated(live, message)
            step = live.program.calls[-1][0]
        named = live.program.steps[step]
        verdict = Verdict(
            outcome="not_run", operator=step_operator(named, live.program.steps),
            target=spelled(named), step=step, notes=attempt.notes,
        )  # fmt: skip
        return self._answer(
            message.candidate,
            Judged(verdict, live),
            contender.rules,
            draws=attempt.draws,
            profile=attempt.profile,
            attempt=number,
        )

    def _probe(self, attempt: Attempt, contender: Contender, case: int) -> Attempt:
        """Return the probe of a case as the run made it: with a backward pass only if the candidate's case has one."""
        reference = self._worker_context.reference
        differentiate(attempt, reference)
        trace = run_forward(contender.backend, attempt)
        if trace.untested is not None:
            text = f"case {case} is outside the candidate's scope, so it has no probe."
            raise AuthorError(text)
        found = probe_of(
            attempt, reference, self._beacon.step,
            of_series=asks(RowName.SERIES, case), has_backward=trace.has_backward,
        )  # fmt: skip
        if isinstance(found, Attempt):
            return found
        text = f"case {case} has no probe: {found}."
        raise AuthorError(text)

    def _isolated(self, live: Live, message: Record) -> Live:
        """Return the step of a message alone; with a backward pass, its results get the reference's gradients."""
        assert message.step is not None  # noqa: S101 - the caller has checked it
        reference, weights = self._worker_context.reference, None
        if message.has_backward:
            rules = self._worker_context.contender(message.candidate, None).rules
            weights = weights_of(live, Examination(live.program, live.sources, live.cotangents, rules).run(reference))
        return pruned(isolate(live, maker_of(live.program.steps, message.step), reference, weights))

    def _record_refused(self, attempt: Attempt, message: Record, number: int) -> Tried:
        """Record an attempt that the reference rejects; its program ends with the refused step."""
        program = attempt.program
        index = output_refs(program)[0].index
        step = program.steps[index]
        verdict = Verdict(
            outcome="not_run", operator=step_operator(step, program.steps), kind="leniency",
            target=spelled(step), step=index,
        )  # fmt: skip
        rules = self._worker_context.contender(message.candidate, None).rules
        return self._answer(
            message.candidate,
            Judged(verdict, live_of(attempt)),
            rules,
            draws=attempt.draws,
            profile=attempt.profile,
            attempt=number,
        )

    def try_program(self, message: TryProgram) -> Tried:
        """Run a program on a candidate, and return the verdict on it."""
        recording = decode(message.program, message.tensors, is_own)
        live = to_live(recording)
        self._beacon.enter(0, 0)
        # The test's file declares the operators that it defines.
        declaration = self._worker_context.test(message.test)[0] if message.test is not None else _declared(recording)
        for step in live.program.steps:
            if step.op == CALL_FUNCTION and (step.target.startswith("torch.") or is_own(step.target)):
                resolve(step.target)  # Raises an error for an unknown function before anything runs.
        contender = self._contender(message, declaration)
        # The row may say by now that the candidate does not take the program.
        scope = contender.backend.case_scope
        if (outside := scope.refusal_of_program(live.program)) is not None:
            return self._outside(message.candidate, outside, live, contender)
        if not scope.is_trained:
            live = live._replace(program=contender.backend.untrained(live.program), cotangents={})
        if message.inlined is not None:
            live = inlined(live, message.inlined, self._worker_context.reference)
        # A nondeterministic program is compared with a second run of itself, because a single run may be right.
        kind = recording.note.kind
        if kind == "stateful":
            return self._sequence(message, live, contender)
        judge = judge_confirmed if kind == "nondeterminism" else judge_program
        beyond = judged_beyond(live, self._watched(contender), contender.accepts, judge, message.wanted)
        return self._answer(message.candidate, beyond.judged, beyond.sides.rules)

    def _outside(self, candidate: str, outside: Unsupported, live: Live, contender: Contender, **more: Any) -> Tried:
        """Return that the candidate's row does not take a program."""
        return self._answer(candidate, Judged(unsupported_verdict(outside), live), contender.rules, **more)

    def _sequence(self, message: TryProgram, live: Live, contender: Contender) -> Tried:
        """Run a sequence of calls; the answer also has the misaligned call as a program of its own."""
        contender = contender._replace(rules=rules_beyond(live.program, contender.rules, contender.accepts))
        judged = judge_sequence(live, self._watched(contender), message.passed_over)
        more = {}
        if judged.verdict.outcome == "misaligned":
            single = to_recording(alone(live, judged.verdict, self._worker_context.reference))
            more = {"alone_program": encode_program(single), "alone_tensors": encode_tensors(single)}
        return self._answer(message.candidate, judged, contender.rules, **more)

    def _answer(self, candidate: str, judged: Judged, rules: Rules, **more: Any) -> Tried:
        context = self._worker_context
        sides = (context.backends[candidate], context.reference)
        recording = shown_recording(judged, context.candidates[candidate], rules, sides, context.hello.reference_device)
        return Tried(
            verdict=judged.verdict,
            program=encode_program(recording),
            tensors=encode_tensors(recording),
            **more,
        )


def _declared(recording: Recording) -> Declaration | None:
    """Return the comparison rules in a saved program's note as a declaration."""
    rules = recording.note.rules
    if rules is None:
        return None
    is_graph = recording.note.kind == "graph"
    return Declaration(
        lambda: None, rtol=rules.rtol, atol=rules.atol, check_dtype=rules.check_dtype, check_graph=is_graph
    )
