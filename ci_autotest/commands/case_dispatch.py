"""Dispatch of cases to the workers: the plan becomes tasks, and the pool's events go into the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.errors import ConfigError
from ci_autotest.extensions import source_of
from ci_autotest.findings.database import Learned, today
from ci_autotest.plan import costs, digest, order, shares
from ci_autotest.run.events import Changed, Cut, LostCase, Passed, Task, TaskPart, Waiting, Wrong
from ci_autotest.values.case import GRID_AT_MOST
from ci_autotest.values.result import LOADER_CANDIDATE, CandidateInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ci_autotest.commands.progress import Progress
    from ci_autotest.commands.request import Request
    from ci_autotest.config import Known
    from ci_autotest.discovery import Selection
    from ci_autotest.plan import Share
    from ci_autotest.run.events import Event
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.pool import Pool


class CasePlan:
    """The cases that this process runs.

    Args:
        tests: All tests, in order.
        request: Has the number of cases and the shard.
        learned: Durations of earlier runs, by test.
    """

    def __init__(self, tests: Sequence[TestInfo], request: Request, learned: Mapping[str, Learned]) -> None:
        self.tests = tuple(tests)
        self.counts = [cases_of(test, request) for test in tests]
        ids = [test.id for test in tests]
        self.case_s = costs(ids, {name: learned[name].case_s for name in ids if name in learned})
        self.shares: list[Share] = shares(self.counts, request.shard, self.case_s)
        self.digest = digest(list(zip(ids, self.counts, strict=True)), self.case_s)

    def ledger(self, infos: Sequence[CandidateInfo], known: tuple[Known, ...] = ()) -> Ledger:
        """Return an empty ledger for the planned cases; ``known`` are the differences that are accepted."""
        available = tuple(info.name for info in infos if info.available and info.name != LOADER_CANDIDATE)
        planned = [(test, share.cases) for test, share in zip(self.tests, self.shares, strict=True)]
        return Ledger(planned, available, known)

    def tasks(self, ledger: Ledger, learned: Mapping[str, Learned]) -> Iterator[Task]:
        """Yield tasks breadth first, the longest test first; durations of this run replace those of earlier ones."""

        def case_s(test: int) -> float:
            entry = ledger.tests[self.tests[test].id]
            cases = entry.tally.accepted + entry.tally.empty
            if cases:
                return entry.tally.duration_s / cases
            known = learned.get(self.tests[test].id)
            return known.case_s if known is not None else 0.0

        # A run that its budget ends early has then run some cases of every test.
        for test, cases in order(self.shares, case_s):
            info = self.tests[test]
            yield Task(info, tuple(cases), ledger.tests[info.id].candidates)


def cases_of(test: TestInfo, request: Request) -> int:
    """Return the number of cases of a test; a data loader is one case whatever the command line says."""
    if test.candidate or test.grid > GRID_AT_MOST:
        return 1  # One case says that a grid is too large.
    # Each example and each point of a grid is a case, so all of them run even if fewer cases are asked for.
    asked = request.cases or test.n
    if test.grid:
        return max(asked or 0, test.grid + test.examples)
    count = max(asked or request.config.cases, test.examples)
    if test.samples is None:
        return count
    return test.samples if request.takes_all else min(count, test.samples)


def needs_no_candidate(tests: Sequence[TestInfo], selection: Selection) -> bool:
    """Whether there is nothing but data loaders to test."""
    own = (source_of(file) for file in selection.files)
    return all(test.candidate for test in tests) and (bool(tests) or any(source and source.candidate for source in own))


def loader_info(tests: Sequence[TestInfo], others: Sequence[CandidateInfo], torch: str) -> list[CandidateInfo]:
    """Return the candidate of the tests of data loaders, if there are any.

    Raises:
        ConfigError: The configuration has a candidate of the same name.
    """
    if not any(test.candidate for test in tests):
        return []
    if any(other.name == LOADER_CANDIDATE for other in others):
        message = f"candidate '{LOADER_CANDIDATE}' has the name that stands for data loaders. Give it another one."
        raise ConfigError(message)
    return [CandidateInfo(name=LOADER_CANDIDATE, backend=LOADER_CANDIDATE, version=torch)]


def execute(pool: Pool, ledger: Ledger, tasks: Iterator[Task], is_over: Callable[[], bool], progress: Progress) -> None:
    """Run tasks and book their events; tasks of a test that broke meanwhile are dropped."""
    if not ledger.pairs:
        return
    progress.begin(sum(len(entry.cases) * len(entry.candidates) for entry in ledger.tests.values()))
    # A broken test would fail in every further case, too.
    for event in pool.run(tasks, lambda task: None if ledger.tests[task.test.id].broken else task, is_over):
        if isinstance(event, Waiting):
            progress.wait(f"{event.position} for {event.seconds:.0f} s", ledger.done, ledger.suspected)
            continue
        book(ledger, event)
        progress.update(event.task.test.id, ledger.done, ledger.suspected)


def book(ledger: Ledger, event: Event) -> None:
    """Count an event of the pool in the ledger."""
    match event:
        case TaskPart(task, done, before):
            ledger.part(task.test.id, done, before)
        case LostCase():
            ledger.lost(event)
        case Wrong(task, wrong):
            ledger.broken(task.test.id, wrong.message, wrong.traceback)
        case Passed(_, error):
            ledger.passed.append(error)
        case Cut(_, note):
            ledger.cut.append(note)
        case Changed(task, left):
            ledger.changed(task.test.id, left)
        case Waiting():
            pass  # It is only shown.


def learned_of(ledger: Ledger, before: Mapping[str, Learned]) -> dict[str, Learned]:
    """Return duration and acceptance by test: those of this run, else those of earlier ones."""
    found = dict(before)
    for test, entry in ledger.tests.items():
        cases = entry.tally.accepted + entry.tally.empty
        if not cases:
            continue
        ordinary = entry.tally.ordinary_accepted + entry.tally.ordinary_rejected
        found[test] = Learned(
            case_s=entry.tally.duration_s / cases,
            acceptance=entry.tally.ordinary_accepted / ordinary if ordinary else 1.0,
            day=today(),
        )
    return found
