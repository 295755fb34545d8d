"""The backend ``dtensor``: the candidate is a group of ranks, and every tensor of a program is a DTensor on them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ci_autotest.backends.protocol import Backend, out_of_scope
from ci_autotest.backends.ranks.group import GroupTrace, WholeRuns
from ci_autotest.backends.ranks.placement_draw import distributed
from ci_autotest.backends.ranks.processes.dtensor_processes import Processes
from ci_autotest.backends.ranks.processes.process_group import ProcessGroup, start_or_close
from ci_autotest.backends.ranks.processes.rank_answer import DTensorRank
from ci_autotest.backends.ranks.processes.rank_device import COMMUNICATION
from ci_autotest.backends.ranks.processes.rank_server import RankServer
from ci_autotest.backends.ranks.simulation import Simulation
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.errors import UnavailableError, Unsupported, UnsupportedReason
from ci_autotest.program.distribution import fits
from ci_autotest.program.hook_names import idle_hooks
from ci_autotest.program.ir import CALL_METHOD, HOOK, REGISTERS
from ci_autotest.program.random_calls import RANDOM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.backends.protocol import Enter, Submission
    from ci_autotest.backends.ranks.group import Group
    from ci_autotest.backends.ranks.placement_draw import Meshes
    from ci_autotest.backends.ranks.processes.process_group import Launcher
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.backends.worker_side import WorkerSide
    from ci_autotest.program.ir import Program
    from ci_autotest.values.schedule import Ability


class DTensorBackend(Backend):
    """Execute programs on a group of ranks.

    Args:
        candidate: Name of the candidate.
        meshes: Meshes of its cases.
        placements: The placements of every input; empty to draw them.
        device: Device of the ranks.
        processes: The worker, if each rank is a process of its own; ``None`` to simulate the ranks.
        launcher: Starts the processes; ``None`` to fork them here.

    Raises:
        UnavailableError: The ranks cannot be started here.
    """

    is_in_process = False

    def __init__(
        self,
        candidate: str,
        meshes: Meshes,
        placements: tuple[str, ...] = (),
        device: str = "cpu",
        *,
        processes: WorkerSide | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        if device != "cpu" and processes is None:
            message = f"candidate '{candidate}': simulated ranks run on cpu, not on '{device}'. Write processes: true."
            raise UnavailableError(message)
        self.on_step: Callable[[int], None] | None = None
        self.mode = f"{math.prod(meshes.plain)} ranks, {'simulated' if processes is None else COMMUNICATION[device]}"
        self._meshes, self._placements = meshes, placements
        self._steps = TorchSteps()
        # Before anything has run here: what was forked later could not run a backward pass.
        own = None if processes is None else launcher or RankServer(candidate, DTensorRank, worker=processes)
        self._launcher: Launcher | None = own
        self._processes: dict[int, ProcessGroup] = {}
        self._groups: dict[tuple[int, ...], Group] = {}
        self._group_of(meshes.plain)
        if self._launcher is not None:
            start_or_close(self._processes[math.prod(meshes.plain)], self._launcher)

    @property
    def abilities(self) -> frozenset[Ability]:
        """Its body is called again: a program of many calls would be one of many placements."""
        return frozenset({"body"})

    def adapted(self, attempt: Attempt) -> Attempt:
        """Return an attempt whose inputs have a distribution, drawn unless the candidate's row gives one."""
        own = super().adapted(attempt)
        return own._replace(program=distributed(own, self._meshes, self._placements))

    def submit(self, attempts: Sequence[Attempt], enter: Enter) -> Submission:
        """Submit a batch, whole runs at once if the ranks are processes."""
        if self._launcher is None:
            return super().submit(attempts, enter)
        return WholeRuns(self.whole_run, list(map(self.adapted, attempts)), enter)

    def whole_run(self, attempt: Attempt) -> Trace:
        """Run an attempt forward and backward at once, as ranks in processes of their own do."""
        outside = out_of_scope(self, attempt) or _refused(attempt.program)
        group = self._group(attempt.program)
        if outside is not None or not isinstance(group, Processes):
            return self.run(attempt.program, attempt.sources)
        trace = group.whole_run(attempt.program, attempt.sources, attempt.cotangents).with_arrays(attempt.program)
        self.case_scope.mark(trace)
        return trace

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - the values of a group are compared as they are at the end
    ) -> Trace:
        """Run the program forward on all ranks."""
        refused = _refused(program)
        if refused is not None:
            trace = GroupTrace(len(program.steps), snapshots=snapshots)
            trace.untested, trace.shown = refused, frozenset()
            return trace
        found = self._group(program).forward(program, sources, self.on_step, snapshots=snapshots)
        return found.with_arrays(program)

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass on all ranks."""
        if isinstance(trace, GroupTrace) and trace.failure is None and trace.untested is None:
            self._group(program).backward(program, trace, cotangents)

    def close(self) -> None:
        """End the ranks."""
        for group in self._groups.values():
            group.close()
        if self._launcher is not None:
            self._launcher.close()

    def _group(self, program: Program) -> Group:
        """Return the ranks of the mesh that a program names; a shrunk one may have fewer than the candidate."""
        return self._group_of(program.mesh or self._meshes.plain)

    def _group_of(self, mesh: tuple[int, ...]) -> Group:
        if mesh not in self._groups:
            self._groups[mesh] = Simulation(mesh, self._steps) if self._launcher is None else self._started(mesh)
        return self._groups[mesh]

    def _started(self, mesh: tuple[int, ...]) -> Group:
        """Return the processes of a mesh; all meshes of one size share theirs."""
        assert self._launcher is not None  # noqa: S101 - the caller has looked
        count = math.prod(mesh)
        if count not in self._processes:
            self._processes[count] = ProcessGroup(self._launcher, count)
        return Processes(self._processes[count], mesh)


def _refused(program: Program) -> Unsupported | None:
    """Return why a program cannot run on ranks; ``None`` if it can be tried."""
    hooks, idle = {*HOOK, *REGISTERS}, idle_hooks(program.steps)
    if any(not hooks.isdisjoint(step.modes) for index, step in enumerate(program.steps) if index not in idle):
        return Unsupported(UnsupportedReason.NOT_SIMULATED, "a hook cannot run on ranks")
    written = [step.target.rstrip("_") for step in program.body if step.op == CALL_METHOD and step.target[-1:] == "_"]
    if not RANDOM.isdisjoint(written):
        return Unsupported(UnsupportedReason.NOT_SIMULATED, "ranks draw random numbers of their own")
    for step in program.steps:
        spec = step.spec
        if spec is not None and spec.distribution and not fits(spec.distribution, len(spec.shape)):
            detail = f"placements: {spec.distribution}; an input has {len(spec.shape)} dimensions"
            return Unsupported(UnsupportedReason.OUT_OF_SCOPE, detail)
    return None
