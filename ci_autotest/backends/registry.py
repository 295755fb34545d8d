"""Make the backend of a candidate: the device is proved here, and the folder of its kind makes the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.backends.backend_setting import BackendSetting
from ci_autotest.backends.case_scope import CaseScope
from ci_autotest.backends.compilers.factory import make_compiler, make_exporter, make_onnx_runtime
from ci_autotest.backends.devices import attach
from ci_autotest.backends.eager.factory import make_eager
from ci_autotest.backends.framework.factory import make_framework
from ci_autotest.backends.fx.factory import make_graph_pass
from ci_autotest.backends.operators.user_operators import register
from ci_autotest.backends.ranks.factory import make_distributed, make_global, make_training
from ci_autotest.backends.substitute.factory import make_substitute
from ci_autotest.backends.worker_side import WorkerSide
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

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.kinds import AnyCandidate


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
    if isinstance(candidate, WorkerCandidate) and not candidate.is_isolated:
        register(candidate)
    # The ranks of a group may have devices that this process has not.
    if isinstance(candidate, DeviceCandidate) and not candidate.is_isolated:
        attach(candidate, device)
    worker = WorkerSide(isolated, on_wait)
    backend = _make(candidate, BackendSetting(device=device, folders=folders, worker=worker, is_fresh=is_fresh))
    if not candidate.replaced:  # whose functions are asked call by call
        backend.case_scope = CaseScope(
            frozenset(candidate.profiles), frozenset(candidate.dtypes), frozenset(candidate.layouts), candidate.run_mode
        )
        plain = "" if backend.case_scope.is_trained else candidate.run_mode.replace("_", " ")
        backend.mode = ", ".join(part for part in dict.fromkeys((*backend.mode.split(", "), plain)) if part)
    return backend


def _make(candidate: AnyCandidate, setting: BackendSetting) -> Backend:  # noqa: C901 - one case for each kind
    match candidate:
        case TorchCandidate():
            return make_eager(setting)
        case CompileCandidate():
            return make_compiler(candidate, setting)
        case FxCandidate():
            return make_graph_pass(candidate, setting)
        case OnnxRuntimeCandidate():
            return make_onnx_runtime(candidate, setting)
        case ExportCandidate():
            return make_exporter(candidate, setting)
        case SubstituteCandidate():
            return make_substitute(candidate, setting)
        case ModuleCandidate() if candidate.ranks is not None:
            return make_global(candidate, setting)
        case ModuleCandidate():
            return make_framework(candidate, setting)
        case DTensorCandidate():
            return make_distributed(candidate, setting)
        case DdpCandidate() | FsdpCandidate():
            return make_training(candidate, setting)
