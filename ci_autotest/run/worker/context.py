"""The context of a worker: its imported tests, its source of attempts, and the backend of every side."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.alignment.cases import Contender
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.devices import (
    available_device,
    device_of,
    module_of,
    prefer_reproducible,
    prove,
    versions,
)
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import operator_of, refuse_unknown_rows
from ci_autotest.backends.operators.user_operators import is_module_class
from ci_autotest.backends.registry import build
from ci_autotest.backends.substitute.written_inputs import check_names
from ci_autotest.config import of_reference
from ci_autotest.config.known_differences import accepted_by
from ci_autotest.errors import ConfigError, MissingNameError, UnavailableError
from ci_autotest.kinds import CompileCandidate
from ci_autotest.program.ir import CALL_FUNCTION, CALL_MODULE
from ci_autotest.program.targets import is_own
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.grids import grid_points, may_have_grid
from ci_autotest.record.user_operators import declare_operators
from ci_autotest.run.worker.tests import Library
from ci_autotest.values.case import test_key
from ci_autotest.values.finding import Location
from ci_autotest.values.result import REFERENCE_CANDIDATE, CandidateInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.record.declaration import Declaration
    from ci_autotest.run.messages import Hello, TestInfo
    from ci_autotest.run.progress_beacon import ProgressBeacon

#: Position of the reference among the candidates of a message.
REFERENCE: Final = -1
#: Folders of installed packages; they may lie in the checkout, but are not part of the repository.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


class WorkerContext:
    """Everything that one ``Hello`` sets up.

    Args:
        hello: The first message.
        beacon: Where the worker reports the case in flight.
        is_fresh: Whether this is a process of its own that has run nothing.

    Attributes:
        library: The imported tests.
        attempts: Draws and records attempts at cases.
        reference: The backend of the reference.
        candidates: The configured candidates, by name.
        infos: Which candidates are available, and why others are not, in the configured order.
        backends: The backends of the available candidates, by name.
        devices: The torch module of each kind of device that a side runs on, such as ``torch.cuda``.
    """

    def __init__(self, hello: Hello, beacon: ProgressBeacon, *, is_fresh: bool = False) -> None:
        """Set up every backend. Of the user's files, only candidates' modules are imported here.

        Raises:
            ConfigError: A row of ``tolerances`` or ``known``, or of a candidate, names an operator that torch lacks, or
                a candidate's module lacks a name.
            UnavailableError: The reference's device does not exist or does not work.
        """
        # By default every core has a worker of its own.
        torch.set_num_threads(1)
        prefer_reproducible()
        self.hello = hello
        self._beacon = beacon
        self.backends: dict[str, Backend] = {}
        self.devices: list[Any] = []
        sys.path += [folder for folder in hello.folders if folder not in sys.path]
        device = available_device(hello.reference_device)
        prove(device, "the reference")
        refuse_unknown_rows([row.operator for row in hello.tolerances], "tolerances")
        refuse_unknown_rows([row.operator for row in hello.known], "known")
        self.library = Library(Path(hello.root), hello.compat, hello.seed, hello.opinfo)
        self.attempts = Attempts(device, hello.shapes)
        self.reference = TorchBackend(device)
        self._add_device(device)
        declare_operators(hello.candidates)
        # Operators of the user's are declared by importing them.
        self._is_fresh = is_fresh and not any(is_own(name) for each in hello.candidates for name in each.replaced)
        self.candidates = {candidate.name: candidate for candidate in hello.candidates}
        self.candidates[REFERENCE_CANDIDATE] = of_reference(device)
        self.infos = [self._build(candidate) for candidate in hello.candidates]
        self.attempts.marks_modules = any(backend.takes_modules for backend in self.backends.values())
        self.backends[REFERENCE_CANDIDATE] = TorchBackend(device, is_candidate=True)

    def _build(self, candidate: AnyCandidate) -> CandidateInfo:
        """Build a candidate's backend, or return why it is not available."""
        self._beacon.enter(REFERENCE, REFERENCE)  # Each candidate may take the full silence limit to start.
        device = device_of(candidate)
        fields: dict[str, Any] = {
            "name": candidate.name,
            "backend": candidate.backend,
            "device": device,
            "replaces": tuple(
                operator_of(name, CALL_MODULE if is_module_class(name) else CALL_FUNCTION)
                for name in candidate.replaced
            ),
        }
        try:
            self._is_fresh = self._is_fresh and candidate.is_isolated
            backend = build(
                candidate, device, self.hello.folders, isolated=True, is_fresh=self._is_fresh,
                on_wait=self._beacon.wait_for,
            )  # fmt: skip
        except MissingNameError as error:
            message = f"candidate '{candidate.name}': {error}"
            raise ConfigError(message) from error
        except UnavailableError as error:
            # The other candidates run all the same; the parent decides whether this one was required.
            return CandidateInfo(**fields, available=False, reason=str(error))
        if candidate.scope.writes:
            kernels_of = {name: backend.functions.get(operator_of(name)) for name in candidate.replaced}
            check_names(candidate.scope.writes, kernels_of, candidate.name)
        self.backends[candidate.name] = backend
        libraries = dict(backend.libraries)
        if backend.is_in_process:
            self._add_device(device)
            libraries |= versions(candidate.device_module)
        kernels = source_locations(backend.functions, Path(self.hello.root))
        return CandidateInfo(**fields, version=backend.version, libraries=libraries, mode=backend.mode, kernels=kernels)

    def _add_device(self, device: str) -> None:
        found = module_of(device)
        if found is not None and found not in self.devices:
            self.devices.append(found)

    def test(self, test: TestInfo) -> tuple[Declaration, Callable[[], object]]:
        """Return a test's declaration and body."""
        declaration, call = self.library.find(test)
        return replace(declaration, grid=test.grid), call

    def with_grid(self, test: TestInfo) -> TestInfo:
        """Return a test with the number of points of its grid, for which cases of it are drawn."""
        if test.candidate or not may_have_grid(test.file):
            return test
        key = test_key(self.hello.seed, test.id)

        def draw(case: int) -> Attempt:
            return self.attempts.attempt(*self.library.find(test), (key, test.id, case, 0))

        return msgspec.structs.replace(test, grid=grid_points(draw))

    def contender(
        self, name: str, declaration: Declaration | None, compiler: str = "", *, asks_float64: bool = True
    ) -> Contender:
        """Return a candidate with the comparison rules for it in a test.

        Args:
            name: The candidate's name.
            declaration: The test's declaration.
            compiler: For a compiled candidate, the compiler backend to use instead of its own.
            asks_float64: Whether the float64 oracle decides which side is wrong.
        """
        hello = self.hello
        backend = self.backends[name]
        candidate = self.candidates[name]
        if compiler and isinstance(candidate, CompileCandidate):
            with_compiler = msgspec.structs.replace(candidate, options={**candidate.options, "backend": compiler})
            backend = build(with_compiler, device_of(candidate), hello.folders, isolated=True)
        rules = rules_for(hello.tolerances, hello.strictness, name, declaration)
        return Contender(
            backend, rules, self._beacon.in_float64 if asks_float64 else None,
            candidate.has_guard, candidate.checks_operators,
            accepted_by(hello.known, name, datetime.now(timezone.utc).date()),
            candidate,
        )  # fmt: skip


def source_locations(functions: Mapping[str, Callable[..., Any]], root: Path) -> dict[str, Location]:
    """Return where functions are defined; only Python functions in the checkout have a location.

    Args:
        functions: Functions by operator.
        root: The configuration's folder. The checkout is the nearest folder at or above it with ``.git``, else itself.
    """
    folder = root.resolve()
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    found = {operator: _location(function, top) for operator, function in functions.items()}
    return {operator: location for operator, location in found.items() if location is not None}


def _location(function: Callable[..., Any], top: Path) -> Location | None:
    # A wrapper of a decorator is defined elsewhere than the kernel.
    plain = inspect.unwrap(function) if isinstance(function, FunctionType) else function
    if not isinstance(plain, FunctionType):
        return None
    file = Path(plain.__code__.co_filename).resolve()
    if not file.is_file() or not file.is_relative_to(top) or _INSTALLED.intersection(file.parts):
        return None
    return Location(file=file.relative_to(top).as_posix(), line=plain.__code__.co_firstlineno)
