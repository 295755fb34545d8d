"""What a request's workers are started by: this machine's processes, one a core or a GPU, or a cluster's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest import config as configuration
from ci_autotest.run import machine
from ci_autotest.run.executor import Executor, LocalExecutor
from ci_autotest.run.process import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.run.machine import Gpu
    from ci_autotest.session.requested import Request


def executor_for(request: Request, environ: Mapping[str, str]) -> Executor:
    """Return what starts the workers of a request.

    Raises:
        UnavailableError: The executor asked for is not there.
    """
    config = request.config
    workers = config.workers if isinstance(config.workers, int) else None
    silence_s = configuration.duration_s(config.case_timeout, "case_timeout")
    if request.executor == "ray":
        from ci_autotest.run.ray_executor import RayExecutor  # noqa: PLC0415 - an extra

        return RayExecutor(environ, silence_s, configuration.size_bytes(config.memory), workers, needs_gpu(request))
    devices = machine.gpus(environ) if needs_gpu(request) is not False else []
    return local_executor(request, environ, devices)


def local_executor(request: Request, environ: Mapping[str, str], devices: Sequence[Gpu]) -> LocalExecutor:
    """Return what starts workers here, on some GPUs."""
    config = request.config
    workers = config.workers if isinstance(config.workers, int) else None
    slots = machine.slots(workers, machine.cores(), devices)
    silence_s = configuration.duration_s(config.case_timeout, "case_timeout")
    return LocalExecutor(environ, Limits(silence_s, memory_limit(request, len(slots))), slots)


def memory_limit(request: Request, workers: int) -> int:
    """Return the resident memory in bytes that each of some workers may hold here; 0: no limit."""
    allowed = configuration.size_bytes(request.config.memory)
    return machine.memory_bytes(workers) if allowed is None else allowed


def needs_gpu(request: Request) -> bool | None:
    """Whether a side of a request runs on a GPU; ``None``: where there is one."""
    asked = {candidate.device for candidate in request.candidates} | {request.config.reference.device}
    if "cuda" in asked:
        return True
    return None if "auto" in asked else False
