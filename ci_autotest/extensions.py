"""Where optional parts of the product hang on to the engine, and the parts that do.

A part is named by ``module:object`` and imported when it is asked for. So the engine imports none of them, which the
linter holds, and a part can be read, tested and removed by itself. What other packages add is in
``values/entry_points``.
"""

from __future__ import annotations

import functools
import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Sources of tests besides the user's files: for each, a sequence of ``Source``.
SOURCES: Final = ("ci_autotest.opinfo.names:SOURCES", "ci_autotest.loader.source:SOURCES")
#: By the value of ``--compat``: the function of a file, a module and its import, that runs another harness's file.
HARNESSES: Final = MappingProxyType({"oneflow": "ci_autotest.compat.foreign_file:run_oneflow_file"})
#: By the candidate of their tests: what runs tests that are no programs in a worker (``run/worker/dispatch``).
RUNNERS: Final = MappingProxyType({"loader": "ci_autotest.loader.runner:LoaderRunner"})
#: By the candidate of their tests: the stages of their findings, and what each is doing (``findings/stages``).
STAGES: Final = MappingProxyType({"loader": "ci_autotest.loader.stages:STAGES"})
#: By the name of the message: what answers it in a worker (``run/worker/dispatch``).
REQUESTS: Final = MappingProxyType(
    {
        "Measure": "ci_autotest.speed.requests:SpeedRequests",
        "TryMutants": "ci_autotest.power.requests:PowerRequests",
    }
)
#: What times the candidates of a run after its cases (``commands/run``).
TIMING: Final = "ci_autotest.speed.stage:time_candidates"
#: Returns the descriptor of the fork server of a service that runs already (``run --warm``).
HANDED_OUT: Final = "ci_autotest.serve.handout:handed_out"
#: Commands of the parts, by name (``cli``).
COMMANDS: Final = MappingProxyType(
    {
        "capture": "ci_autotest.call_capture.cli:capture",
        "loader": "ci_autotest.loader.cli:loader",
        "power": "ci_autotest.power.cli:power",
        "serve": "ci_autotest.serve.cli:serve",
        "verify": "ci_autotest.verify.cli:verify",
    }
)


class Source(Protocol):
    """A source of tests that are in no file of the user's; the parent process asks it about paths."""

    @property
    def name(self) -> str:
        """What its paths begin with."""
        ...

    @property
    def families(self) -> Sequence[str]:
        """What may follow after ``/``."""
        ...

    @property
    def candidate(self) -> str:
        """The one candidate of its tests; empty: those of the configuration."""
        ...

    @property
    def worker(self) -> str:
        """Its ``SourceTests`` (``run/worker/tests``), as ``module:class``."""
        ...

    def owns(self, file: str) -> bool:
        """Whether a path of the command line, or the file of a test, belongs to it."""
        ...

    def files(self, location: str) -> list[str]:
        """Return the names that stand for files of a path.

        Raises:
            UsageError: There is nothing of that name.
        """
        ...

    def shown(self, file: str) -> str:
        """Return a file's name for a message."""
        ...


def part(path: str) -> Any:
    """Return the object that ``module:object`` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def sources() -> tuple[Source, ...]:
    """Return the sources."""
    return tuple(source for path in SOURCES for source in part(path))


def source_of(file: str) -> Source | None:
    """Return the source that a file belongs to; ``None`` for a file of the user's."""
    return next((source for source in sources() if source.owns(file)), None)


def every_part() -> Mapping[str, str]:
    """Return each part by where it is registered, for a test that imports them all."""
    tables = {"HARNESSES": HARNESSES, "RUNNERS": RUNNERS, "STAGES": STAGES, "REQUESTS": REQUESTS, "COMMANDS": COMMANDS}
    named = {f"{table}[{key}]": path for table, rows in tables.items() for key, path in rows.items()}
    return named | {f"SOURCES[{path}]": path for path in SOURCES} | {"TIMING": TIMING, "HANDED_OUT": HANDED_OUT}
