"""The backends ``ddp`` and ``fsdp``: ranks train one module, each on its slice of the batch.

The body of a test is one module (``body_module``), wrapped by PyTorch or by the user's function. Each rank starts its
backward pass from its slice of the gradients times the number of ranks, because the wrapper takes the mean over ranks:
what is held against one process is then the sum over the whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.protocol import Backend, out_of_scope
from ci_autotest.backends.ranks.batch_plan import NotSplitError
from ci_autotest.backends.ranks.batch_split import distributed, ranks_of, why_not_split
from ci_autotest.backends.ranks.group import GroupTrace, WholeRuns
from ci_autotest.backends.ranks.module_processes import run_on_ranks
from ci_autotest.backends.ranks.module_rank import FSDP, ModuleRank, wrapper_of
from ci_autotest.backends.ranks.process_group import ProcessGroup, start_or_close
from ci_autotest.backends.ranks.rank_device import COMMUNICATION
from ci_autotest.backends.ranks.rank_server import RankServer
from ci_autotest.backends.ranks.slice_reference import split_plan
from ci_autotest.backends.ranks.worker_side import ALONE, WorkerSide
from ci_autotest.backends.trace import Trace
from ci_autotest.errors import UnavailableError, Unsupported, UnsupportedReason, import_failure
from ci_autotest.program.ir import OUTPUT, output_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.backends.protocol import Enter, Submission
    from ci_autotest.backends.ranks.batch_plan import RankPlan
    from ci_autotest.backends.ranks.batch_split import Slices
    from ci_autotest.backends.ranks.process_group import Launcher
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Program

_NOTHING: Final[dict[int, Any]] = {}
_CUT: Final = Unsupported(UnsupportedReason.BATCH, "a part of a body has no output")


class ModuleBackend(Backend):
    """Run the bodies of tests as modules that ranks share.

    Args:
        candidate: Name of the candidate.
        backend: ``ddp`` or ``fsdp``.
        ranks: Number of ranks.
        wrap: The user's function, ``module:function``; empty for PyTorch's own wrapper.
        device: Device of the ranks.
        worker: The worker whose candidate they are.
        launcher: Starts their processes; ``None`` to fork them here.

    Raises:
        UnavailableError: The ranks cannot be started here, or there is no such function.
    """

    is_in_process = False
    shows_steps = False
    takes_probes = False

    def __init__(  # noqa: PLR0913 - what a row says, and its worker
        self,
        candidate: str,
        backend: str,
        ranks: int,
        wrap: str = "",
        device: str = "cpu",
        worker: WorkerSide = ALONE,
        *,
        launcher: Launcher | None = None,
    ) -> None:
        if wrap:
            _refuse_missing(candidate, wrap)
        self.on_step: Callable[[int], None] | None = None
        self.mode = f"{ranks} ranks, {COMMUNICATION[device]}"
        self._how, self._count = (backend, wrap), ranks
        # Before anything has run here: what was forked later could not run a backward pass.
        self._launcher: Launcher = launcher or RankServer(candidate, ModuleRank, backend, worker)
        self._groups = {ranks: ProcessGroup(self._launcher, ranks)}
        start_or_close(self._groups[ranks], self._launcher)

    def adapted(self, attempt: Attempt) -> Attempt:
        """Return an attempt whose inputs are split over the ranks."""
        return attempt._replace(program=distributed(attempt, self._count))

    def submit(self, attempts: Sequence[Attempt], enter: Enter) -> Submission:
        """Submit a batch of whole runs."""
        return WholeRuns(self._whole_run, list(map(self.adapted, attempts)), enter)

    def _whole_run(self, attempt: Attempt) -> Trace:
        outside = out_of_scope(self, attempt)
        if outside is not None:
            trace = Trace()
            trace.untested = outside
            return trace
        return self._ran(attempt.program, attempt.sources, attempt.cotangents, snapshots=False)

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - the values of a group are compared as they are at the end
    ) -> Trace:
        """Run the program forward. Its backward pass runs it again, because no rank waits with a graph."""
        trace = self._ran(program, sources, _NOTHING, snapshots=snapshots)
        trace.run = (sources, snapshots)
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the program and its backward pass, and put the gradients into the trace."""
        if not isinstance(trace, GroupTrace) or trace.failure is not None or trace.untested is not None:
            return
        sources, snapshots = trace.run
        found = self._ran(program, sources, cotangents, snapshots=snapshots)
        trace.gradients, trace.untested = found.gradients, found.untested
        trace.backward_failure, trace.backward_lacking = found.backward_failure, found.backward_lacking
        trace.rank_faults = found.rank_faults or trace.rank_faults
        if found.backward_failure is None:  # else the forward pass is all that was compared, with what it had
            trace.expectation = found.expectation

    def plan_note(
        self, program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any]
    ) -> dict[str, Any] | None:
        """Return how the ranks share the batch of a program, which its repro joins alike."""
        ranks = ranks_of(program, self._count)
        if why_not_split(program, ranks) is not None:
            return None
        try:
            slices, plan = self._planned(program, sources, cotangents, ranks)
        except NotSplitError:
            return None
        joins = [plan.joins.get(ref.index) for ref in output_refs(program)]
        return {
            "rows": slices.rows,
            "joins": [[at, join.kind, join.dimension] for at, join in enumerate(joins) if join is not None],
            "sizes": [
                [at, [own[at].shape[join.dimension] for own in plan.cotangents]]
                for at, join in enumerate(joins)
                if join is not None and join.kind == "rows" and at in cotangents
            ],
            "weights": [[index, own] for index, own in plan.weights.items()],
            "of_slices": sorted(map(list, plan.of_slices)),
            "independent": plan.mixes is None,
            "unused": plan.has_unused,
            "sized": list(slices.sized),
        }

    def _planned(
        self, program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any], ranks: int
    ) -> tuple[Slices, RankPlan]:
        # FSDP leaves buffers alone.
        return split_plan(program, sources, cotangents, ranks, shares_buffers=self._how[0] != FSDP)

    def close(self) -> None:
        """End the ranks."""
        for group in self._groups.values():
            group.end()
        self._launcher.close()

    def _ran(
        self, program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any], *, snapshots: bool
    ) -> GroupTrace:
        ranks = ranks_of(program, self._count)
        # A search for the step that writes to a value cuts a program: that does not make a body to train on.
        is_cut = program.body[-1:] == () or program.body[-1].op != OUTPUT
        refused = _CUT if is_cut else why_not_split(program, ranks)
        if refused is not None:
            return _untested(program, refused, snapshots=snapshots)
        try:
            slices, plan = self._planned(program, sources, cotangents, ranks)
        except NotSplitError as error:
            return _untested(program, error.why, snapshots=snapshots)
        if self.on_step is not None and program.calls:
            self.on_step(program.calls[0][0])
        if ranks not in self._groups:
            self._groups[ranks] = ProcessGroup(self._launcher, ranks)
        trace = run_on_ranks(self._groups[ranks], program, slices, plan, self._how, snapshots=snapshots)
        is_faulty = trace.rank_faults or trace.failure is not None or trace.backward_failure is not None
        # What the ranks do not agree on is a fault, whatever their values are held against.
        trace.untested = None if is_faulty else plan.mixes or trace.untested
        return trace


def _untested(program: Program, why: Unsupported, *, snapshots: bool) -> GroupTrace:
    trace = GroupTrace(len(program.steps), snapshots=snapshots)
    trace.untested, trace.shown = why, frozenset()
    return trace


def _refuse_missing(candidate: str, wrap: str) -> None:
    module, _, name = wrap.partition(":")
    try:
        found = wrapper_of(wrap)
    except AttributeError as error:
        message = f"candidate '{candidate}': wrap: module {module!r} has no function {name!r}. Correct the name."
        raise UnavailableError(message) from error
    except Exception as error:
        message = f"candidate '{candidate}': wrap: {module!r} cannot be imported: {import_failure(error, module)}"
        raise UnavailableError(message) from error
    if not callable(found):
        message = f"candidate '{candidate}': wrap: {wrap} is no function. Name one."
        raise UnavailableError(message)
