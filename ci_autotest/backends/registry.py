"""The table of backends by name, and how each one is made for a candidate."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from ci_autotest.backends.devices import attach
from ci_autotest.backends.fx import FxBackend
from ci_autotest.backends.isolated_kernels import IsolatedBackend
from ci_autotest.backends.mapping.table import Table, has_table, load_table
from ci_autotest.backends.mapping.translation import Translator
from ci_autotest.backends.onnx.backend import OnnxBackend
from ci_autotest.backends.operators.names import refuse_unknown
from ci_autotest.backends.remote.backend import RemoteBackend
from ci_autotest.backends.remote.interpreter import Interpreter
from ci_autotest.backends.substitute import SubstituteBackend
from ci_autotest.backends.torch_compile import CompileBackend
from ci_autotest.backends.torch_eager import TorchBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.config import Candidate

_BUILDERS: Final[Mapping[str, Callable[[Candidate, str], Backend]]] = {
    "torch": lambda _, device: TorchBackend(device),
    "torch.compile": lambda candidate, device: CompileBackend(candidate.options, device),
    "fx": lambda candidate, device: FxBackend(candidate.transform, device),
    "onnxruntime": lambda candidate, device: OnnxBackend(candidate.options, device, candidate.name),
    "substitute": lambda candidate, device: SubstituteBackend(_replaced(candidate), device, candidate.scope),
}


def build(candidate: Candidate, device: str, folders: Sequence[str] = (), *, isolated: bool = False) -> Backend:
    """Return a candidate's backend, after a computation has proved its device.

    Args:
        candidate: The candidate.
        device: ``cpu``, ``cuda``, or the device that the candidate's module registers.
        folders: Folders of the user's own modules, for a host.
        isolated: Whether this process is a worker, which may end as the candidate's host ends.

    Raises:
        ConfigError: The candidate names an operator that torch lacks, or a row of its table or an option is wrong.
        UnavailableError: The device is missing, or a module or interpreter cannot be used.
    """
    if candidate.backend == "module":
        return _remote(candidate, device, folders, isolated=isolated)
    if candidate.is_isolated:
        interpreter = _interpreter(candidate, device, folders)._replace(
            module="torch", replace=_replaced(candidate), scope=candidate.scope
        )
        table = Table("torch", "", "torch", like_torch=True, rows={})
        return IsolatedBackend(interpreter, Translator(table), ends_with_host=isolated)
    attach(candidate, device)
    return _BUILDERS[candidate.backend](candidate, device)


def _replaced(candidate: Candidate) -> Mapping[str, str]:
    """Return a candidate's replacements after checking that torch has the operators."""
    for operator in candidate.replace:
        refuse_unknown(operator, f"candidate '{candidate.name}': replace")
    return candidate.replace


def _remote(candidate: Candidate, device: str, folders: Sequence[str], *, isolated: bool) -> RemoteBackend:
    interpreter = _interpreter(candidate, device, folders)
    backend = RemoteBackend(interpreter, Translator(table_of(candidate)), ends_with_host=isolated)
    return backend.in_mode(is_graph=True) if candidate.mode == "graph" else backend


def _interpreter(candidate: Candidate, device: str, folders: Sequence[str]) -> Interpreter:
    # A host is started with -I, which ignores PYTHONPATH, so its folders are passed on.
    given = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    own = tuple(dict.fromkeys(os.path.abspath(folder) for folder in (*folders, *given)))  # noqa: PTH100 - as Python does
    python = candidate.python or sys.executable
    return Interpreter(candidate.name, python, candidate.module, device, own, env=candidate.env)


def table_of(candidate: Candidate) -> Table:
    """Return the table of a candidate's framework; the user's own rows replace those that ship.

    Raises:
        ConfigError: A row is wrong.
    """
    module = candidate.module
    table = load_table(module) if has_table(module) else Table(module, "", module, like_torch=True, rows={})
    return table.extended(candidate.mapping, f"candidate '{candidate.name}'") if candidate.mapping else table
