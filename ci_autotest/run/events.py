"""Events of a run: what the pool reports about the cases of a task. Frozen values; they decide nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ci_autotest.run.messages import Broken, CasesDone, Left, RunCases, TestInfo
    from ci_autotest.run.worker_loss import WorkerLostError

Repeats: TypeAlias = Literal["alone", "history", "never", "unknown"]


class Task(NamedTuple):
    """Cases of one test for one worker.

    Attributes:
        asks_refused: Whether inputs that the reference rejects are also tried on the candidates.
    """

    test: TestInfo
    cases: tuple[int, ...]
    candidates: tuple[str, ...]
    asks_refused: bool = True


class TaskPart(NamedTuple):
    """The results of some cases of a task.

    Attributes:
        before: If a case failed, the messages that its process had run by then; the task's own message is the last.
    """

    task: Task
    done: CasesDone
    before: tuple[RunCases, ...] = ()


class LostCase(NamedTuple):
    """A case that ended its worker; ``candidate`` is ``None`` if the reference was running.

    Attributes:
        repeats: Whether the case ends its worker alone, only after other cases, or never again; ``unknown`` if the run
            ended before anyone checked.
        history: The cases that must run before it, as text for the report.
        after: If the reference ends its process, the ids of the tests that must run before; a single id if one test
            is enough.
        before: If it needs other cases, the messages with which it was lost again; its own message is the last.
    """

    task: Task
    case: int
    candidate: str | None
    error: WorkerLostError
    repeats: Repeats = "alone"
    history: str = ""
    after: tuple[str, ...] = ()
    before: tuple[RunCases, ...] = ()


class Wrong(NamedTuple):
    """A test that cannot run, because its file, its body or its declaration is wrong."""

    task: Task
    broken: Broken


class Passed(NamedTuple):
    """A worker that was killed from outside; all of its cases passed when they ran again."""

    task: Task
    error: WorkerLostError


class Cut(NamedTuple):
    """A note about what a worker was doing when the run ended, if no other event reports it."""

    task: Task
    note: str


class Waiting(NamedTuple):
    """A case that has been running for long, for example because its program is compiled.

    Attributes:
        position: The case, its test and the candidate, in words.
        seconds: Since its worker last made progress.
    """

    task: Task
    position: str
    seconds: float


class Changed(NamedTuple):
    """What a task's cases have changed in their process, for example torch's default dtype."""

    task: Task
    left: tuple[Left, ...]


Event: TypeAlias = TaskPart | LostCase | Wrong | Passed | Cut | Changed | Waiting
