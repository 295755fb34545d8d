"""Runner of tests of data loaders in a worker: it has each loader observed by a process of its own, and judges it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from ci_autotest.loader.declaration import LoaderDeclaration
from ci_autotest.loader.observer import Asked, LoaderError, judgement_of
from ci_autotest.run.messages import Broken, CaseFailure, CasesDone, Tried
from ci_autotest.values.result import LOADER_CANDIDATE, UnsupportedCases
from ci_autotest.values.tally import PairTally, TestTally

if TYPE_CHECKING:
    from ci_autotest.loader.trial import Judgement
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.progress_beacon import ProgressBeacon
    from ci_autotest.run.worker.context import WorkerContext
    from ci_autotest.values.verdict import Verdict


class LoaderRunner:
    """Run tests of data loaders.

    Args:
        worker_context: The tests and the configuration.
        beacon: Where the worker reports the case in flight; the parent takes a silent worker for one that hangs.
    """

    def __init__(self, worker_context: WorkerContext, beacon: ProgressBeacon) -> None:
        self._worker_context = worker_context
        self._beacon = beacon

    def run(self, test: TestInfo) -> CasesDone | Broken:
        """Run a test's loader, and return the result of its one case."""
        begun = time.monotonic()
        skipped = self._worker_context.library.skip_reason(test.file, test.name)
        if skipped is not None:
            return _skipped(skipped)
        try:
            judgement = self._judgement(test)
        except LoaderError as error:
            return Broken(message=str(error), traceback=error.output)
        return _done(judgement, time.monotonic() - begun)

    def confirm(self, test: TestInfo) -> Tried | Broken:
        """Run a test's loader again, and return its verdict and repro."""
        try:
            judgement = self._judgement(test)
        except LoaderError as error:
            return Broken(message=str(error), traceback=error.output)
        return Tried(verdict=judgement.verdict, script=judgement.script)

    def _judgement(self, test: TestInfo) -> Judgement:
        hello = self._worker_context.hello
        declaration, _ = self._worker_context.library.declared(test.file, test.name)
        assert isinstance(declaration, LoaderDeclaration)  # noqa: S101 - tests of this candidate have such a one
        asked = Asked(hello.root, hello.folders, test.file, test.name, hello.seed, declaration)
        # The loader runs in other processes: without these moves the parent would think that this one hangs.
        judgement = judgement_of(asked, hello.case_timeout_s, os.environ, lambda: self._beacon.enter(0, 0))
        return judgement._replace(verdict=_named_after(test.id, judgement.verdict))


def _named_after(test: str, verdict: Verdict) -> Verdict:
    """Return a loader's verdict with an operator of its own: loaders of one class may have different faults."""
    return msgspec.structs.replace(verdict, operator=f"{test}: {verdict.operator}") if verdict.operator else verdict


def _skipped(reason: str) -> CasesDone:
    return CasesDone(done=[0], test=TestTally(skipped=1, skip_reason=reason), last=True)


def _done(judgement: Judgement, duration_s: float) -> CasesDone:
    verdict = judgement.verdict
    failures = (
        [CaseFailure(case=0, attempt=0, candidate=LOADER_CANDIDATE, verdict=verdict, profile="ordinary")]
        if verdict.outcome == "misaligned"
        else []
    )
    unsupported: tuple[UnsupportedCases, ...] = ()
    if verdict.reason is not None:
        unsupported = (UnsupportedCases(reason=verdict.reason, cases=1, details=(verdict.oracle,)),)
    return CasesDone(
        done=[0], failures=failures,
        test=TestTally(accepted=1, ordinary_accepted=1, profiles={"ordinary": 1}, duration_s=duration_s),
        pairs={LOADER_CANDIDATE: PairTally(aligned=int(verdict.outcome == "aligned"), unsupported=unsupported)},
        last=True, notes=list(judgement.notes),
    )  # fmt: skip
