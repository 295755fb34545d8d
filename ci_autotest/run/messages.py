"""The messages between parent and worker, and what an agent on another machine passes on.

Every message is a frozen struct of one of two tagged unions, ``ToWorker`` and ``FromWorker``.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ci_autotest.config import Compat, Known, OpInfo, ToleranceRule
from ci_autotest.kinds import AnyCandidate
from ci_autotest.run.worker_loss import Limit
from ci_autotest.values.case import Draw
from ci_autotest.values.finding import Location
from ci_autotest.values.power import TestPower
from ci_autotest.values.result import CandidateInfo, OperatorStanding, XFail
from ci_autotest.values.schedule import CandidateCall
from ci_autotest.values.speed import SpeedResult
from ci_autotest.values.tally import PairTally, TestTally, UsageTally
from ci_autotest.values.tolerance import Strictness
from ci_autotest.values.verdict import Kind, Verdict


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of every message."""


class TestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A test: what a worker needs to find it again, and what the plan needs to know.

    Attributes:
        id: ``path::name``, or the id that the declaration gives.
        file: Path of the file, or ``builtin:suite/family``.
        name: Qualified name in the file.
        n: Number of cases; ``None`` takes the configuration's.
        candidate: For a test of a data loader, the one candidate that it has; empty for a test of operators, which runs
            on all configured candidates.
        xfail: Whether it is marked as an expected failure.
        examples: Number of cases that have named draws, which run whatever the number of cases.
        samples: Number of cases that there are, counted up to the number asked for; ``None``: as many as asked for.
        grid: Number of points of its grid, each a case; 0 without one.
    """

    id: str
    file: str
    name: str
    n: int | None
    location: Location
    candidate: str = ""
    xfail: XFail | None = None
    examples: int = 0
    samples: int | None = None
    grid: int = 0


class Hello(Message, frozen=True, kw_only=True):
    """Set up a worker.

    Attributes:
        folders: Appended to the import path, never prepended, so that no file there hides a library.
        known: The ``known`` rows of the configuration.
        shapes: Sets of sizes and choices that the cases of a test share; 0: each case has its own.
        case_timeout_s: Seconds that a case may take. The parent watches the cases of operators itself.
        compat: Harness for which the test files were written; ``None`` for ours.
        opinfo: What of PyTorch's databases is tested.
    """

    root: str
    folders: list[str]
    seed: int
    strictness: Strictness
    reference_device: str
    candidates: list[AnyCandidate]
    tolerances: list[ToleranceRule]
    known: list[Known] = []
    shapes: int = 0
    case_timeout_s: float = 60.0
    compat: Compat | None = None
    opinfo: OpInfo = OpInfo()


class Discover(Message, frozen=True):
    """Import a file and list the tests that it defines.

    Attributes:
        file: Path of the file, or a source or family that is built in.
        wanted: Names of its tests that were asked for; empty for all of them.
        cases: Number of cases up to which samples are counted; ``None`` for all of them.
    """

    file: str
    wanted: list[str] = []
    cases: int | None = None


class RunCases(Message, frozen=True, kw_only=True):
    """Run cases of a test on candidates.

    Attributes:
        asks_refused: Whether inputs that the reference rejects are also tried on the candidates.
        asks_float64: Whether the float64 oracle decides which side is wrong.
        ends_if_changed: Whether the worker stops once a case has changed its process. Then only the aligned cases of
            that batch count, and no other batch begins. If false, every case counts.
    """

    test: TestInfo
    cases: list[int]
    candidates: list[str]
    asks_refused: bool = True
    asks_float64: bool = True
    ends_if_changed: bool = False


class Confirm(Message, frozen=True, kw_only=True):
    """Run one attempt on one candidate again, with edited draws, and return its program.

    Attributes:
        edits: Values that replace draws, by site.
        profile: The attempt's profile; ``None`` takes it from the case's number.
        twice: Whether each side is first compared with a second run of itself.
        wanted: Operator and kind of the difference that is confirmed. Others that a row of ``known`` accepts are passed
            over; ``None`` passes over all of them.
        compiler: For a compiled candidate, the compiler backend to use instead of its own.
        asks_float64: As in ``RunCases``.
        has_guard: Whether guard bands lie around inputs and results of a case that has them in a run. They add steps,
            so that the step at which its worker is lost is not the body's.
    """

    test: TestInfo
    case: int
    attempt: int
    candidate: str
    edits: dict[str, bool | int | float | str | None] = {}
    profile: str | None = None
    twice: bool = False
    wanted: tuple[str, str] | None = None
    compiler: str = ""
    asks_float64: bool = True
    has_guard: bool = True


class Record(Message, frozen=True, kw_only=True):
    """Record an attempt on the reference alone, with edited draws; if ``step`` is given, record that step alone.

    Attributes:
        has_backward: Whether the isolated program's backward pass starts from the gradients that the reference gives
            the step's results.
        probe: Whether to record the case's probe, which calls its body several times.
    """

    test: TestInfo
    case: int
    attempt: int | None
    candidate: str
    step: int | None = None
    edits: dict[str, bool | int | float | str | None] = {}
    profile: str | None = None
    has_backward: bool = False
    probe: bool = False


class TryProgram(Message, frozen=True, kw_only=True):
    """Run a program on one candidate, and compare it with the tolerances that ``test`` declares, if given.

    Attributes:
        inlined: A step to replace first by an input with the reference's value.
        wanted: As in ``Confirm``.
        compiler: As in ``Confirm``.
        passed_over: For a sequence of calls, steps that are not compared because their call is wrong alone too.
        asks_float64: As in ``RunCases``.
    """

    program: bytes
    tensors: bytes
    candidate: str
    test: TestInfo | None = None
    inlined: int | None = None
    wanted: tuple[str, str] | None = None
    compiler: str = ""
    passed_over: list[int] = []
    asks_float64: bool = True


class Replay(Message, frozen=True, kw_only=True):
    """Run cases again, in order, in a worker that has run nothing before."""

    candidate: str
    runs: list[RunCases]


class Measure(Message, frozen=True, kw_only=True):
    """Time one case of a test at larger sizes, on one candidate and on what it is measured against.

    Attributes:
        seed: Decides the order within the pairs.
        known: Inputs of the test's cases that were timed before; a case with the same inputs is not timed.
        keeps_program: Whether to return the case's program instead of times.
    """

    test: TestInfo
    case: int
    candidate: str
    seed: int = 0
    known: list[tuple[str, ...]] = []
    keeps_program: bool = False


class TryMutants(Message, frozen=True, kw_only=True):
    """Run the cases of a test on the reference, and mutants of it on the cases.

    Attributes:
        cases: Number of cases.
        seed: Decides which mutants are chosen.
        mutants: Number of mutants at most.
        sources: Number of mutants of torch's Python decompositions at most, besides.
        operators: Operators that may be mutated; empty: all.
        tolerances: The candidate whose rows of ``tolerances`` hold; empty: only rows for all candidates.
        lost: Mutants that have ended their worker, by number, and how.
        unexplained: Survivors whose worker was lost while it looked for a call that tells why.
    """

    test: TestInfo
    cases: int
    seed: int
    mutants: int
    sources: int = 0
    operators: list[str] = []
    tolerances: str = ""
    lost: dict[int, Kind] = {}
    unexplained: list[int] = []


class Examine(Message, frozen=True, kw_only=True):
    """List which of some operators a candidate has, without running anything."""

    candidate: str
    operators: list[str]


ToWorker: TypeAlias = (
    Hello | Discover | RunCases | Confirm | Record | TryProgram | Replay | Examine | Measure | TryMutants
)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A lasting change that a kernel has made to its process and that later cases can see.

    Attributes:
        what: A description without anything that differs from process to process, such as addresses.
        is_recurring: Whether honest libraries make this change too, when they are first called.
    """

    what: str
    is_recurring: bool


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What a test's cases have changed in their process on one candidate, and the operators that they called."""

    candidate: str
    operators: list[str]
    changes: list[Change]


class Ready(Message, frozen=True, kw_only=True):
    """Answer ``Hello`` with the version of torch and what became of each candidate."""

    torch: str
    candidates: list[CandidateInfo]


class ReplacedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that a later definition with its name replaces.

    Attributes:
        name: Qualified name in the file.
        line: Line of the definition that is lost.
    """

    name: str
    line: int
    message: str


class Discovered(Message, frozen=True, kw_only=True):
    """Answer ``Discover``.

    Attributes:
        lost: Tests that a later definition with their name replaces.
        foreign: With ``--compat``: the number of unittest's tests that do not use ``@autotest``.
    """

    tests: list[TestInfo]
    lost: list[ReplacedTest] = []
    foreign: int = 0


class Examined(Message, frozen=True, kw_only=True):
    """Answer ``Examine``.

    Attributes:
        devices: Devices that the candidate's framework can use here; empty if it cannot tell.
        operators: In the order of the request.
    """

    devices: list[str]
    operators: list[OperatorStanding]


class Broken(Message, frozen=True, kw_only=True):
    """An error: a file cannot be imported, a test is wrong, or a program is refused.

    Attributes:
        message: Text for the reader.
        traceback: Only the user's own lines.
        is_refusal: Whether the worker refused the request, and nothing is wrong with the worker itself.
        is_changed: Whether the request has changed the process.
    """

    message: str
    traceback: str
    is_refusal: bool = False
    is_changed: bool = False


class CaseFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A case that was not aligned on a candidate, or was aligned with a note."""

    case: int
    attempt: int
    candidate: str
    verdict: Verdict
    profile: str


class CasesDone(Message, frozen=True, kw_only=True):
    """Answer ``RunCases``, in parts; ``last`` marks the final one.

    Attributes:
        done: Cases of this part, in order.
        failures: Cases that were misaligned or lenient.
        test: What holds for all candidates.
        pairs: What is counted of each candidate. Probes are in the last part.
        usage: What the cases used of each candidate; the name ``""`` stands for everything recorded.
        last: Whether this is the last part.
        left: What the cases have changed in the process, by the candidate that changed it.
        again: Cases that must run again in a process of their own before they count; they are not in ``done``.
        notes: Sentences for the report.
    """

    done: list[int]
    failures: list[CaseFailure] = []
    test: TestTally
    pairs: dict[str, PairTally] = {}
    usage: dict[str, UsageTally] = {}
    last: bool
    left: list[Left] = []
    again: list[int] = []
    notes: list[str] = []


class Tried(Message, frozen=True, kw_only=True):
    """Answer ``Confirm``, ``Record`` and ``TryProgram``.

    Attributes:
        verdict: The verdict on the program.
        program: ``program.json`` of the program that shows it: the culprit alone, or the whole body.
        tensors: ``tensors.safetensors`` of that program.
        whole_program: ``program.json`` of the whole body, for ``Confirm``.
        whole_tensors: ``tensors.safetensors`` of the whole body.
        alone_program: For a sequence of calls, the misaligned call alone, with the values that it had there.
        alone_tensors: ``tensors.safetensors`` of that call.
        draws: The draw log.
        profile: The profile that the attempt ended up with.
        attempt: Number of the attempt.
        is_changed: Whether the request has changed the process.
        script: For a finding without a recorded program, its repro.
    """

    verdict: Verdict
    program: bytes = b""
    tensors: bytes = b""
    whole_program: bytes = b""
    whole_tensors: bytes = b""
    alone_program: bytes = b""
    alone_tensors: bytes = b""
    draws: list[Draw] = []
    profile: str = "ordinary"
    attempt: int = 0
    is_changed: bool = False
    script: str = ""


class Measured(Message, frozen=True, kw_only=True):
    """Answer ``Measure`` with the forward and the backward pass, or with why they were not timed.

    Attributes:
        results: Empty if a case with the same inputs was timed before.
        program: ``program.json`` of the case, if it was asked for.
        tensors: ``tensors.safetensors`` of the case.
        is_changed: Whether the request has changed the process.
    """

    results: list[SpeedResult]
    program: bytes = b""
    tensors: bytes = b""
    is_changed: bool = False


class MutantsTried(Message, frozen=True, kw_only=True):
    """Answer ``TryMutants``."""

    power: TestPower


class Replayed(Message, frozen=True, kw_only=True):
    """Answer ``Replay`` with the failures of its cases, each with its test's id, and the calls that it made."""

    failures: list[tuple[str, CaseFailure]]
    calls: list[CandidateCall] = []


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker on another machine was lost; the attributes are those of ``WorkerLostError``."""

    reason: str
    spot: tuple[int, int, int, int, int]
    output: str
    limit: Limit
    is_killed: bool
    calls: list[CandidateCall] = []


class WorkerReply(msgspec.Struct, frozen=True, kw_only=True):
    """A remote worker's answer to a message: the bodies of its frames, and how it was lost if it was."""

    bodies: list[bytes]
    gone: Gone | None = None


FromWorker: TypeAlias = Ready | Discovered | Broken | CasesDone | Tried | Replayed | Examined | Measured | MutantsTried
