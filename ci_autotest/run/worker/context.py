"""What a worker has: imported tests, the source of attempts, and every backend."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.alignment.cases import (
    Contender,
)
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.devices import available_device, module_of, prove, versions
from ci_autotest.backends.operators.names import refuse_unknown_rows
from ci_autotest.backends.registry import build
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.errors import UnavailableError
from ci_autotest.record.attempt import Attempts
from ci_autotest.run.worker.gpu import prepare
from ci_autotest.run.worker.source_locations import source_locations
from ci_autotest.run.worker.tests import Library
from ci_autotest.values.result import CandidateInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.config import Candidate
    from ci_autotest.record.declaration import Declaration
    from ci_autotest.run.messages import (
        Hello,
        TestInfo,
    )
    from ci_autotest.run.progress_beacon import ProgressBeacon

#: Position of the reference among the candidates of a job.
REFERENCE: Final = -1


class WorkerContext:
    """Hold what one ``Hello`` sets up.

    Args:
        hello: Says which.
        place: Where the case in flight is told.

    Attributes:
        hello: As given.
        library: The tests that are imported.
        attempts: Makes attempts at cases.
        reference: The side believed.
        candidates: As configured, by name.
        infos: What became of each candidate, in the order given.
        backends: Of the candidates that are available, by name.
        devices: What torch keeps for each kind of device that a side runs on.
    """

    def __init__(self, hello: Hello, place: ProgressBeacon) -> None:
        """Import nothing of the user's but candidates' modules.

        Raises:
            ConfigError: A row of ``tolerances`` or ``known``, or a candidate's, names what torch does not have.
            UnavailableError: The reference's device is not there.
        """
        torch.set_num_threads(1)
        prepare(torch)
        self.hello = hello
        self._place = place
        self.backends: dict[str, Backend] = {}
        self.devices: list[Any] = []
        sys.path += [folder for folder in hello.folders if folder not in sys.path]
        device = available_device(hello.reference_device)
        prove(device, "the reference")
        refuse_unknown_rows([row.operator for row in hello.tolerances], "tolerances")
        refuse_unknown_rows(hello.accepted, "known")
        self.library = Library(Path(hello.root))
        self.attempts = Attempts(device, hello.shapes)
        self.reference = TorchBackend(device)
        self._uses(device)
        self.candidates = {candidate.name: candidate for candidate in hello.candidates}
        self.infos = [self._offer(candidate) for candidate in hello.candidates]

    def _offer(self, candidate: Candidate) -> CandidateInfo:
        """Build a candidate's backend; say why where it cannot be."""
        self._place.enter(REFERENCE, REFERENCE)  # Each may take its time to start.
        device = available_device(candidate.device)
        said: dict[str, Any] = {
            "name": candidate.name,
            "backend": candidate.backend,
            "device": device,
            "replaces": tuple(candidate.replace),
        }
        try:
            backend = build(candidate, device, self.hello.folders, isolated=True)
        except UnavailableError as error:
            return CandidateInfo(**said, available=False, reason=str(error))
        self.backends[candidate.name] = backend
        libraries = dict(backend.libraries)
        if backend.is_in_process:
            self._uses(device)
            libraries |= versions(candidate.module)
        kernels = source_locations(backend.functions, Path(self.hello.root))
        return CandidateInfo(**said, version=backend.version, libraries=libraries, mode=backend.mode, kernels=kernels)

    def _uses(self, device: str) -> None:
        """Remember what is asked of a device when something went wrong there."""
        found = module_of(device)
        if found is not None and found not in self.devices:
            self.devices.append(found)

    def test(self, test: TestInfo) -> tuple[Declaration, Callable[[], object]]:
        """Return a test's declaration and body."""
        return self.library.find(test)

    def contender(
        self, name: str, declaration: Declaration | None, compiler: str = "", *, asks_float64: bool = True
    ) -> Contender:
        """Return a candidate with the rules that hold for it in a test.

        Args:
            name: The candidate's.
            declaration: The test's.
            compiler: Of a compiled candidate, the compiler's backend that is used instead of its own.
            asks_float64: Whether float64 is asked who is right.
        """
        hello = self.hello
        backend = self.backends[name]
        if compiler:
            candidate = self.candidates[name]
            with_compiler = msgspec.structs.replace(candidate, options={**candidate.options, "backend": compiler})
            backend = build(with_compiler, available_device(candidate.device), hello.folders, isolated=True)
        rules = rules_for(hello.tolerances, hello.strictness, name, declaration)
        return Contender(backend, rules, self._place.in_float64 if asks_float64 else None)
