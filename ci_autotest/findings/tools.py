"""The tools of a run for making findings: workers, the output folder, and the time allowed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.report.finding_files import located
from ci_autotest.run.single_worker import SingleWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from ci_autotest.config import Known
    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.program.recording import Recording
    from ci_autotest.run.executor import Worker
    from ci_autotest.run.fork_client import ForkClient
    from ci_autotest.run.messages import Hello

_REPRO_TIMEOUT_S: Final = 120.0
_REPRO_LEAST_S: Final = 5.0


@dataclass(slots=True)
class Allowance:
    """The time left for confirming and shrinking findings and for running repros.

    Args:
        deadline: Monotonic seconds after which no request is sent; ``None``: never.
        repros_s: Seconds left for running repros; after that they are marked unverified.
    """

    deadline: float | None = None
    repros_s: float = 300.0

    @property
    def is_spent(self) -> bool:
        """Whether the deadline has passed, so that no further suspect is inspected."""
        return self.deadline is not None and time.monotonic() > self.deadline

    @property
    def repro_s(self) -> float:
        """Seconds that one repro may take: a few after the deadline, none once all repros have taken too long."""
        if self.repros_s <= 0:
            return 0.0
        left = _REPRO_TIMEOUT_S if self.deadline is None else self.deadline - time.monotonic()
        return max(_REPRO_LEAST_S, min(_REPRO_TIMEOUT_S, left))


def show_nothing(_: str) -> None:
    """Show nothing, where nobody watches."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What all findings of a run are made with.

    Args:
        start: Starts a fresh worker.
        fork_client: Runs repros alone.
        hello: The first message to every worker.
        output: The output folder.
        folders: Folders to search for the candidates' modules.
        seed: Root seed.
        environ: Environment of the repro's process.
        case_timeout_s: Seconds that a case may take.
        shown: The output folder as the user wrote it.
        replay: The command that runs a finding's program again, without its folder.
        allowance: The time left.
        known: Rows of differences that are accepted today.
        show: Shows what is being done, on a terminal.
        unwritten: Sentences about what could not be written; the run goes on and reports them at its end.
    """

    start: Callable[[], Worker]
    fork_client: ForkClient
    hello: Hello
    output: Path
    folders: tuple[Path, ...]
    seed: int
    environ: Mapping[str, str]
    case_timeout_s: float = 60.0
    shown: str = "autotest-report"
    replay: str = "ci-autotest replay"
    allowance: Allowance = field(default_factory=Allowance)
    show: Callable[[str], None] = show_nothing
    unwritten: list[str] = field(default_factory=list)
    known: tuple[Known, ...] = ()

    def fresh(self, seed: int | None = None) -> SingleWorker:
        """Return a worker for one request at a time; ``seed`` replaces this run's root seed."""
        hello = self.hello if seed is None else msgspec.structs.replace(self.hello, seed=seed)
        return SingleWorker(self.start, hello, self.allowance.deadline)

    def is_sandboxed(self, candidate: str) -> bool:
        """Whether a candidate runs in a sandbox, and so in no script that is run outside of it."""
        return any(row.is_sandboxed for row in self.hello.candidates if row.name == candidate)

    def with_module_folders(self, recording: Recording) -> Recording:
        """Return a recording whose note says where the modules and the large tensors of its program lie."""
        return located(recording, self.folders, self.case_timeout_s, self.shown)


class Inspection(NamedTuple):
    """What one suspect is inspected with.

    Attributes:
        tools: The tools of the run.
        fresh: The worker that answers requests about it.
        confirmed: Ids of confirmed findings; a suspect that turns out to be one of them is not written again.
    """

    tools: Tools
    fresh: SingleWorker
    confirmed: Collection[str] = ()

    def is_compiled(self, suspect: Suspect) -> bool:
        """Whether the candidate makes one graph of a program, also of several cases."""
        row = self._row(suspect)
        return row is not None and row.is_compiler

    def is_one_body(self, suspect: Suspect) -> bool:
        """Whether the candidate is called again with the body of a case, and not with a program of several calls."""
        row = self._row(suspect)
        return row is not None and (row.is_compiler or row.rank_count > 1)

    def _row(self, suspect: Suspect) -> AnyCandidate | None:
        return next((row for row in self.tools.hello.candidates if row.name == suspect.candidate), None)
