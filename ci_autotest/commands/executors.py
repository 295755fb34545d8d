"""Choice of the executor for a request: workers on this machine, one per core or GPU, or on a Ray cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest import config as configuration
from ci_autotest.errors import UsageError
from ci_autotest.run import machine_resources
from ci_autotest.run.executor import Executor, LocalExecutor
from ci_autotest.run.fork_client import ForkClient, preloaded
from ci_autotest.run.process import Limits
from ci_autotest.run.sandbox_servers import SandboxStarter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.commands.request import Request
    from ci_autotest.run.machine_resources import Gpu


#: Workers that one core may have: more would only wait for the core, and each takes memory.
_WORKERS_PER_CORE: Final = 16


class Means(NamedTuple):
    """What starts the processes of a run.

    Attributes:
        executor: Starts workers.
        fork_client: Starts fresh processes on this machine, for example to run a repro alone.
        notes: Sentences about what could not be used; they grow while workers start.
        sandboxes: Servers of the candidates in sandboxes.
    """

    executor: Executor
    fork_client: ForkClient
    notes: Sequence[str] = ()
    sandboxes: SandboxStarter | None = None

    def close(self) -> None:
        """End the processes that they hold."""
        self.fork_client.close()
        self.executor.close()
        if self.sandboxes is not None:
            self.sandboxes.close()


class Surroundings(NamedTuple):
    """What the processes of a run come from.

    Attributes:
        environ: The parent's environment.
        interruptible: For workers in this process: returns a block in which Ctrl-C is raised at once.
        echo: Receives what workers print; ``None`` without ``-s``.
    """

    environ: Mapping[str, str]
    interruptible: Callable[[], AbstractContextManager[None]]
    echo: Callable[[bytes], None] | None = None


def means_for(request: Request, surroundings: Surroundings) -> Means:
    """Return what starts the processes of a request.

    Raises:
        UnavailableError: The requested executor is not available.
    """
    environ = surroundings.environ
    if request.is_in_process:
        # The parent's one exception from importing no framework, and only here.
        from ci_autotest.run.in_process_worker import InProcessExecutor  # noqa: PLC0415

        alone = ForkClient(environ, Limits(_silence_s(request)), preloaded(request.candidates))
        return Means(InProcessExecutor(surroundings.interruptible), alone)
    if request.executor == "local":
        devices = machine_resources.gpus(environ) if needs_gpu(request) is not False else []
        return local_means(request, environ, devices, surroundings.echo)
    from ci_autotest.run.ray.executor import RankNeeds, RayExecutor  # noqa: PLC0415 - an extra

    silence_s = _silence_s(request)
    allowed = configuration.size_bytes(request.config.memory)
    own = [candidate.device for candidate in request.candidates if not candidate.has_rank_processes]
    groups = [candidate for candidate in request.candidates if candidate.has_rank_processes]
    gpus = max((group.rank_count for group in groups if group.device == "cuda"), default=0)
    workers_need = _need_of({*own, request.config.reference.device})
    ranks = None if not groups else RankNeeds(gpus)
    executor = RayExecutor(environ, silence_s, allowed, _workers(request), workers_need, ranks)
    limits = Limits(silence_s, memory_limit(request, executor.slots))
    return Means(executor, ForkClient(environ, limits, preloaded(request.candidates)), executor.notes)


def local_means(
    request: Request,
    environ: Mapping[str, str],
    devices: Sequence[Gpu],
    echo: Callable[[bytes], None] | None = None,
) -> Means:
    """Return what starts processes on this machine and its GPUs ``devices``; ``echo`` receives what they print.

    Raises:
        UsageError: More workers were requested than this machine's cores can serve.
    """
    cores, workers = machine_resources.cores(), _workers(request)
    if workers is not None and workers > _WORKERS_PER_CORE * cores:
        message = (
            f"{workers:,} workers are too many for the {cores} cores of this machine. "
            f"Give at most {_WORKERS_PER_CORE * cores}, or leave --workers out."
        )
        raise UsageError(message)
    slots = machine_resources.slots(workers, cores, devices, _gpus_together(request, len(devices)))
    limits = Limits(_silence_s(request), memory_limit(request, len(slots)), echo)
    sandboxes = SandboxStarter(request.candidates, request.root, environ, limits.memory_bytes)
    added = [{**slot, **sandboxes.variables} for slot in slots]
    fork_client = ForkClient(environ, limits, preloaded(request.candidates), added[0])
    return Means(LocalExecutor(fork_client, added), fork_client, sandboxes=sandboxes)


@contextmanager
def single_processes(request: Request, environ: Mapping[str, str], silence_s: float) -> Iterator[LocalExecutor]:
    """Yield what starts one process at a time, for commands that run no suite.

    Args:
        request: What the command was asked for; its limit of memory holds.
        environ: The parent's environment.
        silence_s: Seconds without progress after which a process is ended.
    """
    fork_client = ForkClient(environ, Limits(silence_s, memory_limit(request, 1)), preloaded(request.candidates))
    try:
        yield LocalExecutor(fork_client)
    finally:
        fork_client.close()


def _workers(request: Request) -> int | None:
    return request.config.workers if isinstance(request.config.workers, int) else None


def _silence_s(request: Request) -> float:
    return configuration.duration_s(request.config.case_timeout, "case_timeout")


def memory_limit(request: Request, workers: int) -> int:
    """Return the resident memory in bytes that each of ``workers`` may hold on this machine; 0 for no limit."""
    allowed = configuration.size_bytes(request.config.memory)
    return machine_resources.memory_bytes(workers) if allowed is None else allowed


def _gpus_together(request: Request, gpus: int) -> int:
    """Return how many of this machine's GPUs a worker needs at once: one, or one for each rank of a group."""
    groups = [candidate for candidate in request.candidates if candidate.has_rank_processes]
    counts = [
        group.rank_count
        for group in groups
        if group.device == "cuda" or (group.device == "auto" and group.rank_count <= gpus)
    ]
    return max(counts, default=1)


def needs_gpu(request: Request) -> bool | None:
    """Return whether a side of a request needs a GPU; ``None`` if it uses one only when there is one."""
    return _need_of({candidate.device for candidate in request.candidates} | {request.config.reference.device})


def _need_of(devices: Collection[str]) -> bool | None:
    if "cuda" in devices:
        return True
    return None if "auto" in devices else False
