"""How the backend of each kind of candidate is made."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from ci_autotest.backends.case_scope import CaseScope
from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.compilers.onnx import OnnxExporter
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.compilers.user_exporter import UserExporter
from ci_autotest.backends.devices import attach
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.mapping.table import MappingTable, has_table, load_table
from ci_autotest.backends.framework.mapping.translation import Translator
from ci_autotest.backends.function_paths import load_function
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.backends.operators.identity import refuse_unknown
from ci_autotest.backends.operators.user_operators import find, is_module_class, register
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.backends.substitute.isolated_kernels import IsolatedBackend
from ci_autotest.backends.worker_side import WorkerSide
from ci_autotest.errors import ConfigError, ProgramError, UnavailableError
from ci_autotest.kinds import (
    CompileCandidate,
    DdpCandidate,
    DeviceCandidate,
    DTensorCandidate,
    ExportCandidate,
    FsdpCandidate,
    FxCandidate,
    ModuleCandidate,
    OnnxRuntimeCandidate,
    SubstituteCandidate,
    TorchCandidate,
    WorkerCandidate,
)
from ci_autotest.program.targets import is_own
from ci_autotest.values.rank_servers import RANK_SERVERS
from ci_autotest.values.sandbox import sandboxed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.ranks.process_group import Launcher
    from ci_autotest.kinds import AnyCandidate, RankCandidate


def _ranks(candidate: DTensorCandidate, device: str, folders: Sequence[str], worker: WorkerSide) -> Backend:
    """Return a group of ranks. DTensor takes 0.6 s to import, which no other candidate should wait for."""
    from ci_autotest.backends.ranks.backend import DTensorBackend  # noqa: PLC0415
    from ci_autotest.backends.ranks.placement_draw import Meshes  # noqa: PLC0415

    ranks = candidate.ranks or 0
    # Placements that are given are those of one dimension if no mesh is.
    meshes = Meshes(ranks, candidate.mesh or ((ranks,) if candidate.placements else ()))
    if not candidate.processes:
        return DTensorBackend(candidate.name, meshes, candidate.placements, device)
    return DTensorBackend(
        candidate.name, meshes, candidate.placements, device, processes=worker,
        launcher=_launcher(msgspec.structs.replace(candidate, device=device), folders, worker),
    )  # fmt: skip


def _modules(
    candidate: DdpCandidate | FsdpCandidate, device: str, folders: Sequence[str], worker: WorkerSide
) -> Backend:
    """Return ranks that share the batch of a module, which no other candidate should wait to import."""
    from ci_autotest.backends.ranks.module_backend import ModuleBackend  # noqa: PLC0415

    return ModuleBackend(
        candidate.name, candidate.backend, candidate.ranks or 0, candidate.wrap, device, worker,
        launcher=_launcher(msgspec.structs.replace(candidate, device=device), folders, worker),
    )  # fmt: skip


def _launcher(candidate: RankCandidate, folders: Sequence[str], worker: WorkerSide) -> Launcher | None:
    """Return what starts ranks on the nodes of a cluster or on GPUs; ``None`` if they are forked from this process."""
    from ci_autotest.backends.ranks.rank_device import check_devices  # noqa: PLC0415 - only ranks wait for it

    if RANK_SERVERS in os.environ:
        from ci_autotest.backends.ranks.remote_ranks import RemoteRanks, servers_in  # noqa: PLC0415 - clusters only

        servers = servers_in(os.environ[RANK_SERVERS])
        check_devices(candidate, sum(servers.gpus))
        return RemoteRanks(candidate, servers, folders, worker)
    check_devices(candidate, 0 if candidate.device == "cpu" else torch.cuda.device_count())
    if candidate.device == "cpu":
        return None
    from ci_autotest.backends.ranks.gpu_ranks import GpuRanks  # noqa: PLC0415 - GPUs only

    return GpuRanks(candidate, folders, worker)


def _compiled(candidate: CompileCandidate, device: str) -> Backend:
    try:
        return CompileBackend(candidate.options, device, _hook(candidate.delegated), candidate.run_mode)
    except ConfigError as error:
        message = f"candidate '{candidate.name}': {error}"
        raise ConfigError(message) from error


def _user_exporter(candidate: ExportCandidate) -> UserExporter:
    function = load_function(candidate.compile, "compile")
    return UserExporter(
        partial(function, **candidate.options), candidate.compile, candidate.takes, is_dynamic=candidate.dynamic
    )


def _hook(path: str) -> Callable[..., Any] | None:
    """Return the function that says what a compiler runs itself; ``None`` if that is to be seen."""
    return load_function(path, "delegated") if path else None


def build(
    candidate: AnyCandidate,
    device: str,
    folders: Sequence[str] = (),
    *,
    isolated: bool = False,
    is_fresh: bool = False,
    on_wait: Callable[[Collection[int]], None] | None = None,
) -> Backend:
    """Return a candidate's backend, after a computation has proved its device.

    Args:
        candidate: The candidate.
        device: ``cpu``, ``cuda``, or the device that the candidate's module registers.
        folders: Folders of the user's own modules, for a host or for ranks on other machines.
        isolated: Whether this process is a worker, which may end as the candidate's host ends.
        is_fresh: Whether nothing of the user's has run in this process, so that its fork is as fresh as a new one.
        on_wait: Called with the ranks of a group that have not answered, and with none when all have, or have started.

    Raises:
        ConfigError: The candidate names an operator that torch lacks, or a row of its table or an option is wrong.
        UnavailableError: The device is missing, or a module or interpreter cannot be used.
    """
    worker = WorkerSide(isolated, on_wait)
    backend = _built(candidate, device, folders, worker, is_fresh=is_fresh)
    if not candidate.replaced:  # whose functions are asked call by call
        backend.case_scope = CaseScope(
            frozenset(candidate.profiles), frozenset(candidate.dtypes), frozenset(candidate.layouts), candidate.run_mode
        )
        plain = "" if backend.case_scope.is_trained else candidate.run_mode.replace("_", " ")
        backend.mode = ", ".join(part for part in dict.fromkeys((*backend.mode.split(", "), plain)) if part)
    return backend


def _built(  # noqa: C901 - one case for each kind
    candidate: AnyCandidate, device: str, folders: Sequence[str], worker: WorkerSide, *, is_fresh: bool
) -> Backend:
    if isinstance(candidate, WorkerCandidate) and not candidate.is_isolated:
        register(candidate)
    # The ranks of a group may have devices that this process has not.
    if isinstance(candidate, DeviceCandidate) and not candidate.is_isolated:
        attach(candidate, device)
    match candidate:
        case TorchCandidate():
            return TorchBackend(device, is_candidate=True)
        case CompileCandidate():
            return _compiled(candidate, device)
        case FxCandidate():
            return FxBackend(candidate.transform, device)
        case OnnxRuntimeCandidate():
            return ExportBackend(OnnxExporter(candidate.options, candidate.name), device)
        case ExportCandidate():
            return ExportBackend(_user_exporter(candidate), device, _hook(candidate.delegated))
        case SubstituteCandidate() if candidate.is_isolated:
            return _isolated(candidate, device, folders, worker, is_fresh=is_fresh)
        case SubstituteCandidate():
            return SubstituteBackend(_replaced(candidate), device, candidate.scope, candidate.state)
        case ModuleCandidate():
            return _remote(candidate, device, folders, worker)
        case DTensorCandidate():
            return _ranks(candidate, device, folders, worker)
        case DdpCandidate() | FsdpCandidate():
            return _modules(candidate, device, folders, worker)


def _isolated(
    candidate: SubstituteCandidate, device: str, folders: Sequence[str], worker: WorkerSide, *, is_fresh: bool
) -> Backend:
    _refuse_classes(candidate)
    root = Path(folders[0]) if folders else Path.cwd()
    seen = tuple(str((root / folder).resolve()) for folder in candidate.sandbox or ())
    interpreter = Interpreter(
        candidate.name, sys.executable, "torch", device, env=candidate.env,
        folders=seen if candidate.is_sandboxed else _host_folders(folders),
        replace=_replaced(candidate), scope=candidate.scope, sandbox=_sandbox(candidate, seen),
    )  # fmt: skip
    table = MappingTable("torch", "", "torch", like_torch=True, rows={})
    return IsolatedBackend(
        interpreter, Translator(table, takes_float8=True), ends_with_host=worker.is_isolated,
        is_fresh=is_fresh and not candidate.is_sandboxed,
    )  # fmt: skip


def _sandbox(candidate: SubstituteCandidate, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the beginning of the command of a sandbox; empty if the candidate has none."""
    if not candidate.is_sandboxed:
        return ()
    try:
        return tuple(sandboxed(folders))
    except UnavailableError as error:
        message = f"candidate '{candidate.name}': {error}"
        raise UnavailableError(message) from error


def _replaced(candidate: SubstituteCandidate) -> Mapping[str, str]:
    """Return a candidate's replacements after checking that torch has the operators, or that the user declared them."""
    for operator in candidate.replace:
        if is_own(operator):
            _refuse_missing(operator, candidate)
        elif not is_module_class(operator):
            refuse_unknown(operator, f"candidate '{candidate.name}': replace")
    return candidate.replace


def _refuse_classes(candidate: SubstituteCandidate) -> None:
    """Refuse to replace classes of modules in a process of their own: a host has no such replacement."""
    classes = [operator for operator in candidate.replace if is_module_class(operator)]
    if classes:
        message = (
            f"candidate '{candidate.name}': replace: {classes[0]} is a class of modules, which `isolated` and `env` do "
            "not replace. Remove them."
        )
        raise ConfigError(message)


def _refuse_missing(operator: str, candidate: SubstituteCandidate) -> None:
    try:
        find(operator)
    except ProgramError as error:
        message = (
            f"candidate '{candidate.name}': replace: no library registers {operator!r} with torch. Name the library in "
            "`load`, or the module that registers it in `import`."
        )
        raise ConfigError(message) from error


def _remote(candidate: ModuleCandidate, device: str, folders: Sequence[str], worker: WorkerSide) -> RemoteBackend:
    python = candidate.python or sys.executable
    interpreter = Interpreter(
        candidate.name, python, candidate.module, device, _host_folders(folders), env=candidate.env
    )
    if candidate.ranks is not None:
        return _global(candidate, interpreter, worker)
    backend = RemoteBackend(interpreter, Translator(table_of(candidate)), ends_with_host=worker.is_isolated)
    return backend.in_mode(is_graph=True) if candidate.mode == "graph" else backend


def _global(candidate: ModuleCandidate, interpreter: Interpreter, worker: WorkerSide) -> RemoteBackend:
    """Return a group of hosts. It is imported here, because most candidates have one."""
    from ci_autotest.backends.ranks.global_tensors import GlobalTensorBackend  # noqa: PLC0415

    assert candidate.ranks is not None  # noqa: S101 - the caller has looked
    translator = Translator(table_of(candidate))
    backend = GlobalTensorBackend(interpreter, translator, candidate.ranks, worker)
    return backend.in_mode(is_graph=True) if candidate.mode == "graph" else backend


def _host_folders(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the folders of a host's modules: it is started with -I, which ignores PYTHONPATH."""
    given = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return tuple(dict.fromkeys(os.path.abspath(folder) for folder in (*folders, *given)))  # noqa: PTH100


def table_of(candidate: ModuleCandidate) -> MappingTable:
    """Return the table of a candidate's framework; the user's own rows replace those that ship.

    Raises:
        ConfigError: A row is wrong.
    """
    module = candidate.module
    table = load_table(module) if has_table(module) else MappingTable(module, "", module, like_torch=True, rows={})
    return table.extended(candidate.mapping, f"candidate '{candidate.name}'") if candidate.mapping else table
