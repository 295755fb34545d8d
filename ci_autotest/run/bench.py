"""The worker's bench: what it does with each message. Everything with a framework in it happens here and below."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import torch

from ci_autotest.alignment.cases import (
    Contender,
    accept,
    differentiate,
    go_back,
    go_forward,
    is_aligned,
    judge_case,
)
from ci_autotest.alignment.confirm import judge_confirmed
from ci_autotest.alignment.inline import inlined
from ci_autotest.alignment.isolate import isolate, pruned
from ci_autotest.alignment.localize import Sides
from ci_autotest.alignment.quick import overwritten
from ci_autotest.alignment.recording import to_live, to_recording, with_expected
from ci_autotest.alignment.rules import rules_for
from ci_autotest.alignment.verdict import Judged, judge_program, live_of
from ci_autotest.backends.build import build
from ci_autotest.backends.census import Census
from ci_autotest.backends.devices import available_device, module_of, prove, versions
from ci_autotest.backends.hosting import HostLostError
from ci_autotest.backends.notes import repro_note
from ci_autotest.backends.onnx.backend import OnnxBackend
from ci_autotest.backends.operators import spelled, step_operator
from ci_autotest.backends.remote import RemoteBackend
from ci_autotest.backends.standing import standing
from ci_autotest.backends.torch_eager import TorchBackend, resolve
from ci_autotest.case import test_key
from ci_autotest.errors import AuthorError, UnavailableError, said
from ci_autotest.judgement import Misalignment, Verdict
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, Program, Step, maker_of
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.declare import Declaration
from ci_autotest.result import CandidateInfo
from ci_autotest.run.gpu import prepare, retire_if_spoiled
from ci_autotest.run.messages import (
    CaseFailure,
    CasesDone,
    Confirm,
    Discover,
    Discovered,
    Examine,
    Examined,
    Hello,
    Ready,
    Record,
    RunCases,
    Tried,
    TryProgram,
)
from ci_autotest.run.tally import Tally
from ci_autotest.run.tests import Library

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.alignment.rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.config import Candidate
    from ci_autotest.program.ir import Recording
    from ci_autotest.run.messages import FromWorker, TestInfo, ToWorker
    from ci_autotest.run.place import Place

#: Seconds between two parts of an answer to ``RunCases``.
_PART_S: Final = 0.5
#: Position of the reference among the candidates of a job.
_REFERENCE: Final = -1


#: Cases whose phases are run together.
BATCH: Final = 16


class _Batch(NamedTuple):
    """Some cases of a test, its candidates, and their positions."""

    test: str
    cases: list[int]
    order: Mapping[str, int]
    contenders: Mapping[str, Contender]


class Bench:
    """Answer the parent's messages.

    Args:
        place: Where the case in flight is told.
        send: Sends a part of an answer before the answer is complete.
    """

    def __init__(self, place: Place, send: Callable[[CasesDone], None]) -> None:
        """Wait for ``Hello``."""
        self._place = place
        self._send = send
        self._hello: Hello
        self._library: Library
        self._attempts: Attempts
        self._reference: Backend
        self._backends: dict[str, Backend] = {}
        self._candidates: dict[str, Candidate] = {}
        self._overwritten: dict[str, frozenset[int]] = {}
        self._census = Census()
        #: What torch keeps for each kind of device that a side runs on.
        self._devices: list[Any] = []

    def answer(self, message: ToWorker) -> FromWorker:
        """Return the answer to a message."""
        match message:
            case Hello():
                return self._set_up(message)
            case Discover(file):
                self._place.enter(_REFERENCE, _REFERENCE)
                return Discovered(self._library.tests(file))
            case RunCases():
                return self._run(message)
            case Confirm():
                return self._confirm(message)
            case Record():
                return self._record(message)
            case TryProgram():
                return self._try(message)
            case Examine(candidate=name, operators=operators):
                return Examined(**standing(self._backends[name], operators)._asdict())

    def _set_up(self, hello: Hello) -> Ready:
        torch.set_num_threads(1)
        prepare(torch)
        self._hello = hello
        sys.path += [folder for folder in hello.folders if folder not in sys.path]
        device = available_device(hello.reference_device)
        prove(device, "the reference")
        self._library = Library(Path(hello.root))
        self._attempts = Attempts(device, hello.shapes)
        self._reference = TorchBackend(device)
        self._uses(device)
        self._candidates = {candidate.name: candidate for candidate in hello.candidates}
        return Ready(
            torch=str(torch.__version__),
            candidates=[self._offer(candidate) for candidate in hello.candidates],
        )

    def _offer(self, candidate: Candidate) -> CandidateInfo:
        """Build a candidate's backend; say why where it cannot be."""
        self._place.enter(_REFERENCE, _REFERENCE)  # Each may take its time to start.
        device = available_device(candidate.device)
        said: dict[str, Any] = {
            "name": candidate.name,
            "backend": candidate.backend,
            "device": device,
            "replaces": tuple(candidate.replace),
        }
        try:
            backend = build(candidate, device, self._hello.folders, isolated=True)
        except UnavailableError as error:
            return CandidateInfo(**said, available=False, reason=str(error))
        self._backends[candidate.name] = backend
        if isinstance(backend, RemoteBackend):
            hello = backend.hello
            return CandidateInfo(**said, version=hello.version, libraries=hello.libraries, mode=backend.mode)
        if isinstance(backend, OnnxBackend):
            return CandidateInfo(**said, version=backend.version, libraries=backend.libraries, mode=backend.mode)
        self._uses(device)
        return CandidateInfo(**said, version=str(torch.__version__), libraries=versions(candidate.module))

    def _uses(self, device: str) -> None:
        """Remember what is asked of a device when something went wrong there."""
        found = module_of(device)
        if found is not None and found not in self._devices:
            self._devices.append(found)

    def _test(self, test: TestInfo) -> tuple[Declaration, Callable[[], object]]:
        """Return a test's declaration and body, and set the streams up for it."""
        found = self._library.find(test)
        self._attempts.seeds_python = self._library.reaches_generators(test)
        return found

    def _contender(self, name: str, declaration: Declaration | None, compiler: str = "") -> Contender:
        hello = self._hello
        backend = self._backends[name]
        if compiler:
            candidate = self._candidates[name]
            with_compiler = msgspec.structs.replace(candidate, options={**candidate.options, "backend": compiler})
            backend = build(with_compiler, available_device(candidate.device), hello.folders, isolated=True)
        return Contender(backend, rules_for(hello.tolerances, hello.strictness, name, declaration))

    def _run(self, message: RunCases) -> CasesDone:
        self._place.enter(_REFERENCE, _REFERENCE)
        declaration, call = self._test(message.test)
        contenders = {name: self._contender(name, declaration) for name in message.candidates}
        order = {name: i for i, name in enumerate(message.candidates)}
        key = test_key(self._hello.seed, message.test.id)
        tally = Tally(self._census)

        def draw(case: int, number: int) -> Attempt:
            watched = self._overwritten.get(message.test.id, frozenset())
            return self._attempts.attempt(declaration, call, (key, message.test.id, case, number), watched=watched)

        for start in range(0, len(message.cases), BATCH):
            if tally.duration_s > _PART_S:
                self._send(tally.message(last=False))
                tally = Tally(self._census)
            batch = _Batch(message.test.id, message.cases[start : start + BATCH], order, contenders)
            self._attempts.prefetch(key, batch.cases)
            try:
                self._batch(batch, draw, tally)
            except Exception:
                retire_if_spoiled(self._devices)
                raise
        return tally.message(last=True)

    def _batch(self, batch: _Batch, draw: Callable[[int, int], Attempt], tally: Tally) -> None:
        """Run a few cases phase by phase: each phase's code stays warm, and the outcomes are those of one by one."""
        place = self._place
        accepted = []
        for case in batch.cases:
            place.enter(case, _REFERENCE, 0)
            attempt, number = draw(case, 0), 0
            if attempt.refused is not None:
                attempt, number = self._again(case, attempt, batch, draw, tally)
            if attempt.refused is None:
                accepted.append((case, number, attempt))
        tally.accepted(batch.cases, accepted)
        for case, number, attempt in accepted:
            place.enter(case, _REFERENCE, number)
            differentiate(attempt, self._reference)
            tally.undefined += attempt.trace.backward_failure is not None
        for name, contender in batch.contenders.items():
            self._contend(accepted, (batch.test, name), contender, batch.order[name], tally)

    def _again(
        self, case: int, refused: Attempt, batch: _Batch, draw: Callable[[int, int], Attempt], tally: Tally
    ) -> tuple[Attempt, int]:
        """Draw a case again whose first attempt the reference refused; try on the candidates what it refuses."""
        positions = {"": _REFERENCE, **batch.order}

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
            place.enter(accepted[0][0], position, accepted[0][1])
            backend.ahead([attempt for _, _, attempt in accepted])
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
                retire_if_spoiled(self._devices)
                tally.failures.append(_failure(case, number, name, verdict, attempt.profile))
        tally.aligned(name, aligned)
        tally.covered(name, outcomes)
        tally.saw(name, backend)

    def _judged(self, attempt: Attempt, contender: Contender, trace: Trace) -> Verdict | None:
        """Return the verdict on a case, ``None`` where a quick look vouches for it.

        A result that cannot even be looked at is the candidate's error, and costs no other candidate its case.
        """
        try:
            if is_aligned(attempt, contender, trace):
                return None
            return judge_case(attempt, contender, self._reference, trace).verdict
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

    def _confirm(self, message: Confirm) -> Tried:
        declaration, call = self._test(message.test)
        contender = self._contender(message.candidate, declaration, message.compiler)
        self._place.enter(message.case, _REFERENCE)
        key = test_key(self._hello.seed, message.test.id)
        name = (key, message.test.id, message.case, message.attempt)
        attempt = self._attempts.attempt(declaration, call, name, message.edits, message.profile)
        note = {
            "draws": [list(draw) for draw in attempt.draws],
            "profile": attempt.profile,
            "attempt": message.attempt,
        }
        if attempt.refused is not None:
            return self._refused(attempt, contender, message)
        live = live_of(attempt)
        self._place.enter(message.case, 0)
        judged = (judge_confirmed if message.twice else judge_program)(live, self._watched(contender))
        whole = to_recording(live, note)
        return self._tried(
            message.candidate, judged, contender.rules,
            whole_program=encode_program(whole), whole_tensors=encode_tensors(whole),
            draws=attempt.draws, profile=attempt.profile, attempt=message.attempt,
        )  # fmt: skip

    def _refused(self, attempt: Attempt, contender: Contender, message: Confirm) -> Tried:
        """Try again what the reference rejects."""
        from ci_autotest.alignment.cases import leniency  # noqa: PLC0415 - rare path

        self._place.enter(message.case, 0, message.attempt)
        contender.backend.on_step = self._place.step
        found = leniency(attempt, contender)
        verdict = found.verdict if found is not None else Verdict(outcome="not_run")
        return Tried(verdict=verdict, draws=attempt.draws, profile=attempt.profile, attempt=message.attempt)

    def _watched(self, contender: Contender) -> Sides:
        """Return the sides with each step of the candidate told to the parent."""
        contender.backend.on_step = self._place.step
        return Sides(contender.backend, self._reference, contender.rules)

    def _record(self, message: Record) -> Tried:
        declaration, call = self._test(message.test)
        key = test_key(self._hello.seed, message.test.id)
        self._place.enter(message.case, _REFERENCE)

        def draw(case: int, number: int) -> Attempt:
            name = (key, message.test.id, case, number)
            return self._attempts.attempt(declaration, call, name, message.edits, message.profile)

        number = message.attempt if message.attempt is not None else 0
        attempt: Attempt | None = draw(message.case, number)
        if message.attempt is None:
            found = accept(message.case, draw, {}, lambda _case, _name, _number: None)
            attempt, number = found.attempt, found.number
        if attempt is None:
            text = f"case {message.case} of {message.test.id} has no accepted attempt."
            raise AuthorError(text)
        if attempt.refused is not None:
            return self._record_refused(attempt, message, number)
        live = live_of(attempt)
        step = message.step if message.step is not None else live.program.calls[-1][0]
        if message.step is not None:
            live = pruned(isolate(live, maker_of(live.program.steps, message.step), self._reference))
            step = live.program.calls[-1][0]
        named = live.program.steps[step]
        verdict = Verdict(
            outcome="not_run", operator=step_operator(named, live.program.steps),
            target=spelled(named), step=step,
        )  # fmt: skip
        return self._tried(
            message.candidate,
            Judged(verdict, live),
            self._contender(message.candidate, declaration).rules,
            draws=attempt.draws,
            profile=attempt.profile,
            attempt=number,
        )

    def _record_refused(self, attempt: Attempt, message: Record, number: int) -> Tried:
        """Record an attempt that the reference rejects: its program ends with the refused step and puts nothing out."""
        program = attempt.program
        step = program.steps[-1]
        ended = Program(program.setup, (*program.body, Step(OUTPUT, "output", ())))
        live = live_of(attempt)._replace(program=ended)
        verdict = Verdict(
            outcome="not_run", operator=step_operator(step, program.steps), kind="leniency",
            target=spelled(step), step=len(program.steps) - 1,
        )  # fmt: skip
        rules = self._contender(message.candidate, None).rules
        return self._tried(
            message.candidate,
            Judged(verdict, live),
            rules,
            draws=attempt.draws,
            profile=attempt.profile,
            attempt=number,
        )

    def _try(self, message: TryProgram) -> Tried:
        recording = decode(message.program, message.tensors)
        live = to_live(recording)
        for step in live.program.steps:
            if step.op == CALL_FUNCTION and step.target.startswith("torch."):
                resolve(step.target)  # refused before anything is run
        self._place.enter(0, 0)
        declaration = self._test(message.test)[0] if message.test is not None else _declared(recording)
        contender = self._contender(message.candidate, declaration, message.compiler)
        if message.inlined is not None:
            live = inlined(live, message.inlined, self._reference)
        judged = judge_program(live, self._watched(contender))
        return self._tried(message.candidate, judged, contender.rules)

    def _tried(self, candidate: str, judged: Judged, rules: Rules, **more: Any) -> Tried:  # noqa: ANN401 - as `Tried`
        note = repro_note(self._candidates[candidate], judged.live.program.steps, self._hello.reference_device)
        note["rules"] = {"rtol": rules.rtol, "atol": rules.atol, "check_dtype": rules.check_dtype}
        note["strictness"] = rules.strictness
        backend = self._backends[candidate]
        if isinstance(backend, RemoteBackend) and (host := backend.note(judged.live.program, judged.live.sources)):
            note["host"] = host
        recording = with_expected(to_recording(judged.live, note), judged.live, self._reference)
        return Tried(
            verdict=judged.verdict,
            program=encode_program(recording),
            tensors=encode_tensors(recording),
            **more,
        )


def _declared(recording: Recording) -> Declaration | None:
    """Return how the test that a saved program came from is compared, as its note says; checked like a declaration."""
    told = recording.note.get("rules")
    if not isinstance(told, dict):
        return None
    rtol, atol = told.get("rtol"), told.get("atol")
    if not (isinstance(rtol, float) and isinstance(atol, float) and rtol >= 0 and atol >= 0):
        rtol = atol = None
    is_graph = recording.note.get("kind") == "graph"
    is_checked = told.get("check_dtype") is not False
    return Declaration(lambda: None, rtol=rtol, atol=atol, check_dtype=is_checked, check_graph=is_graph)


def _failure(case: int, attempt: int, candidate: str, verdict: Verdict, profile: str) -> CaseFailure:
    return CaseFailure(case=case, attempt=attempt, candidate=candidate, verdict=verdict, profile=profile)
