"""The messages between parent and worker, and what an agent on another machine passes on.

Every message is a frozen struct of one of two tagged unions, ``ToWorker`` and ``FromWorker``.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ci_autotest.config import Candidate, ToleranceRule
from ci_autotest.values.case import Draw
from ci_autotest.values.coverage_values import Exercised
from ci_autotest.values.result import CandidateInfo, Location, OperatorStanding, UnsupportedCases
from ci_autotest.values.tolerance import Strictness
from ci_autotest.values.verdict import Verdict


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of every message."""


class TestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Say what a worker needs to find a test again, and what the plan needs to know of it.

    Attributes:
        id: ``path::name``, or what the declaration gives.
        file: Path of the file, or ``builtin:suite/family``.
        name: Qualified name in the file.
        n: Cases it asks for; ``None`` takes the configuration's.
        location: Where it is defined.
    """

    id: str
    file: str
    name: str
    n: int | None
    location: Location


class Hello(Message, frozen=True, kw_only=True):
    """Set a worker up. Folders are appended to the import path, never prepended."""

    root: str
    folders: list[str]
    seed: int
    strictness: Strictness
    reference_device: str
    candidates: list[Candidate]
    tolerances: list[ToleranceRule]
    accepted: list[str] = []
    shapes: int = 0


class Discover(Message, frozen=True):
    """Import a file and say which tests it defines."""

    file: str


class RunCases(Message, frozen=True, kw_only=True):
    """Run cases of a test on candidates.

    Attributes:
        asks_refused: Whether candidates are asked for what the reference rejects.
        asks_float64: Whether float64 is asked who is right.
        ends_if_changed: Whether the process is of no more use once it is changed: of the batch that changed it only
            what is aligned counts, and no other one is begun. Else everything counts.
    """

    test: TestInfo
    cases: list[int]
    candidates: list[str]
    asks_refused: bool = True
    asks_float64: bool = True
    ends_if_changed: bool = False


class Confirm(Message, frozen=True, kw_only=True):
    """Run one attempt on one candidate again, as edited, and show its program.

    Attributes:
        edits: Values by site that replace draws.
        profile: What the attempt is about; from the case's number when ``None``.
        twice: Whether each side is held against itself first.
        compiler: Of a compiled candidate, the compiler's backend that is used instead of its own.
        asks_float64: As in ``RunCases``.
    """

    test: TestInfo
    case: int
    attempt: int
    candidate: str
    edits: dict[str, bool | int | float | str | None] = {}
    profile: str | None = None
    twice: bool = False
    compiler: str = ""
    asks_float64: bool = True


class Record(Message, frozen=True, kw_only=True):
    """Record an attempt on the reference alone, as edited; with ``step``, that step isolated.

    Attributes:
        has_backward: Whether what the reference puts into the step's results goes into the isolated program's.
        probe: Whether the program is the case's probe: its body called several times.
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
    """Run a program on one candidate, compared as ``test`` declares where it is given.

    Attributes:
        inlined: A step that is first replaced by an input with the reference's value.
        compiler: As in ``Confirm``.
        passed_over: Of several calls, values that are not looked at: their call is wrong alone too.
        asks_float64: As in ``RunCases``.
    """

    program: bytes
    tensors: bytes
    candidate: str
    test: TestInfo | None = None
    inlined: int | None = None
    compiler: str = ""
    passed_over: list[int] = []
    asks_float64: bool = True


class Replay(Message, frozen=True, kw_only=True):
    """Run cases again as a worker did that had run nothing before them.

    Attributes:
        runs: In order.
    """

    candidate: str
    runs: list[RunCases]


class Examine(Message, frozen=True, kw_only=True):
    """Say which of some operators a candidate has; nothing is run."""

    candidate: str
    operators: list[str]


ToWorker: TypeAlias = Hello | Discover | RunCases | Confirm | Record | TryProgram | Replay | Examine


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Say what of its process a kernel has changed for good, that later cases see.

    Attributes:
        what: In words, without what differs from process to process.
        is_habit: Whether honest libraries do so too, when they are first called.
    """

    what: str
    is_recurring: bool


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Say what cases of a test left changed on one candidate; ``operators`` are those that they called."""

    candidate: str
    operators: list[str]
    changes: list[Change]


class Ready(Message, frozen=True, kw_only=True):
    """Answer ``Hello``: what is there."""

    torch: str
    candidates: list[CandidateInfo]


class Discovered(Message, frozen=True):
    """Answer ``Discover``."""

    tests: list[TestInfo]


class Examined(Message, frozen=True, kw_only=True):
    """Answer ``Examine``.

    Attributes:
        devices: That the candidate's framework can use here; none where it does not say.
        operators: In the order in which they were asked for.
    """

    devices: list[str]
    operators: list[OperatorStanding]


class Broken(Message, frozen=True, kw_only=True):
    """Say that a file cannot be imported, that a test is wrong, or that a program is refused.

    Attributes:
        message: For the reader.
        traceback: Of the user's own lines.
        is_refusal: Whether what was asked for is refused, and nothing is amiss here.
        is_changed: Whether the process is no longer what it was before the question.
    """

    message: str
    traceback: str
    is_refusal: bool = False
    is_changed: bool = False


class CaseFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Say what one case showed on one candidate, where it was not aligned, or aligned with a note."""

    case: int
    attempt: int
    candidate: str
    verdict: Verdict
    profile: str


class Cost(Message, frozen=True, kw_only=True):
    """What cases of a test cost on one candidate beside the reference; nothing where it cannot be seen.

    Attributes:
        cases: Measured, without the first of a test: it warms up.
        candidate_s: Seconds.
        reference_s: Seconds of the same cases, recording included.
        watched: Those of ``cases`` in which memory was watched.
        kept_bytes: Allocated in them call by call, and not freed when they were over.
        drawn: What it did with the generator where the reference drew, if that is something else.
    """

    cases: int = 0
    candidate_s: float = 0.0
    reference_s: float = 0.0
    watched: int = 0
    kept_bytes: int = 0
    drawn: Literal["", "nothing", "otherwise"] = ""


def added(one: Cost, other: Cost) -> Cost:
    """Return what two parts of a test's cases cost together."""
    return Cost(
        cases=one.cases + other.cases, candidate_s=one.candidate_s + other.candidate_s,
        reference_s=one.reference_s + other.reference_s, watched=one.watched + other.watched,
        kept_bytes=one.kept_bytes + other.kept_bytes, drawn=one.drawn or other.drawn,
    )  # fmt: skip


class CasesDone(Message, frozen=True, kw_only=True):
    """Answer ``RunCases``, in parts; ``last`` ends it.

    Attributes:
        done: Cases of this part, in order.
        aligned: Cases by candidate.
        unsupported: Cases by candidate and reason.
        failures: What was misaligned or lenient.
        accepted: Attempts.
        rejected: Attempts.
        ordinary_accepted: Ordinary attempts.
        ordinary_rejected: Ordinary attempts.
        empty: Cases of which every attempt was rejected.
        undefined: Cases whose backward pass the reference refused: their values alone were compared.
        outside: Cases with an input that was computed outside of the recorded steps.
        refusal: What the reference said to one of those that it rejected.
        profiles: Accepted cases by profile.
        seen: Calls by operator, for candidates that count them.
        left_out: By candidate, what its modules lack of the reference's parameters and buffers.
        covered: By candidate that compared it how far each operator was exercised; by no name for what was recorded.
        costs: By candidate.
        duration_s: Seconds.
        left: What the process is no longer, by the candidate that changed it.
        again: Cases that count only once they were run in a process of their own: they are not in ``done``.
    """

    done: list[int]
    aligned: dict[str, int]
    unsupported: dict[str, tuple[UnsupportedCases, ...]]
    failures: list[CaseFailure]
    accepted: int
    rejected: int
    ordinary_accepted: int
    ordinary_rejected: int
    empty: int
    undefined: int
    outside: int = 0
    refusal: str
    profiles: dict[str, int]
    seen: dict[str, dict[str, int]]
    left_out: dict[str, list[str]] = {}
    covered: dict[str, dict[str, Exercised]] = {}
    costs: dict[str, Cost] = {}
    duration_s: float
    last: bool
    left: list[Left] = []
    again: list[int] = []


class Tried(Message, frozen=True, kw_only=True):
    """Answer ``Confirm``, ``Record`` and ``TryProgram``.

    Attributes:
        verdict: What it showed.
        program: ``program.json`` of what shows it: the culprit alone, or the whole.
        tensors: ``tensors.safetensors`` of it.
        whole_program: Of the whole body, for ``Confirm``.
        whole_tensors: Of the whole body.
        alone_program: Of several calls, the one that is wrong by itself, with the values that it had.
        alone_tensors: Of that.
        draws: The draw log.
        profile: What the attempt turned out to be about.
        attempt: Number of the attempt.
        is_changed: Whether the process is no longer what it was before the question.
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


class Replayed(Message, frozen=True, kw_only=True):
    """Answer ``Replay``: what failed in any of its cases, each with its test's id."""

    failures: list[tuple[str, CaseFailure]]


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """Say how a worker of another machine was lost; the attributes are those of ``WorkerLostError``."""

    reason: str
    spot: tuple[int, int, int, int, int]
    output: str
    timed_out: bool
    is_killed: bool


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Carry what a worker of another machine said to a message: bodies of frames, and its end where it came to one."""

    bodies: list[bytes]
    gone: Gone | None = None


FromWorker: TypeAlias = Ready | Discovered | Broken | CasesDone | Tried | Replayed | Examined
