"""The backend ``module`` with ``ranks``: every tensor of a program lies on a group of hosts, as OneFlow's global ones.

How the inputs lie is drawn as for ``dtensor``, within the limits of OneFlow 0.9. It ends the process where a
dimension with fewer rows than ranks is cut, and where a collective on the CPU meets float16 or bfloat16. The parameters
of a module become global all at once, so that they are replicated.

A shrunk program may lie on two ranks. OneFlow cannot change the size of a group, so that the group is ended, and one of
that size is started.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.backends.ranks.host_answers import WHOLE_PASS
from ci_autotest.backends.ranks.placement_draw import Meshes, distributed
from ci_autotest.backends.ranks.rank_hosts import SILENCE_S, RankHosts
from ci_autotest.backends.ranks.worker_side import ALONE, WorkerSide
from ci_autotest.backends.remote.backend import RemoteBackend
from ci_autotest.backends.remote.response import recorded_step
from ci_autotest.backends.remote.response_trace import ResponseTrace
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.distribution import FEWEST, REPLICATE, Distribution, dimension_of, is_placement

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.mapping.translation import Translator
    from ci_autotest.backends.protocol import Enter, Submission
    from ci_autotest.backends.remote.interpreter import Interpreter
    from ci_autotest.backends.remote.response import Reader
    from ci_autotest.backends.trace import Attempt, RankFault, Trace
    from ci_autotest.program.ir import Program, Step, TensorSpec

#: Dtypes that OneFlow's collectives on the CPU do not take.
_NOT_SENT: Final = frozenset({"float16", "bfloat16"})


class GlobalTensorBackend(RemoteBackend):
    """Execute programs on the ranks of another interpreter.

    Args:
        interpreter: The interpreter and the framework's module.
        translator: Translates programs to the framework.
        ranks: Number of ranks.
        worker: The worker; if it is not isolated, lost hosts are an exception.
        silence_s: Seconds without a move after which a rank waits for ever.

    Raises:
        UnavailableError: The ranks cannot be started.
    """

    batches_ahead = 0
    takes_probes = False

    def __init__(
        self,
        interpreter: Interpreter,
        translator: Translator,
        ranks: int,
        worker: WorkerSide = ALONE,
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._ranks = ranks
        start = partial(RankHosts, count=ranks, silence_s=silence_s, worker=worker)
        super().__init__(interpreter, translator, ends_with_host=worker.is_isolated, start=start)
        self.mode = f"{ranks} ranks"

    def in_mode(self, *, is_graph: bool) -> RemoteBackend:
        """Return this backend in eager or graph mode, with the same ranks."""
        found = super().in_mode(is_graph=is_graph)
        found.mode = ", ".join(part for part in (f"{self._ranks} ranks", found.mode) if part)
        return found

    def adapted(self, attempt: Attempt) -> Attempt:
        """Return an attempt whose inputs have a distribution."""
        program = distributed(attempt, Meshes(self._ranks, (self._ranks,)), ())
        return attempt._replace(program=program.with_steps(_placeable(step, self._ranks) for step in program.steps))

    def submit(self, attempts: Sequence[Attempt], enter: Enter) -> Submission:
        """Submit a batch of whole runs."""
        return _Batch(self, list(map(self.adapted, attempts)), enter)

    def whole_run(self, attempt: Attempt, enter: Enter) -> Trace:
        """Run an attempt forward and backward at once, and wait for it."""
        [trace] = super().submit([attempt], enter).traces()
        trace.load()
        trace.rank_faults = self._faults(attempt.program, trace)
        return trace

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),
    ) -> Trace:
        """Run the program forward on all ranks."""
        trace = super().run(program, sources, snapshots=snapshots, copied=copied)
        trace.rank_faults = self._faults(program, trace)
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass of the program that ran last, on all ranks."""
        has_run = isinstance(trace, ResponseTrace) and trace.has_gone_back
        super().backward(program, trace, cotangents)
        if not has_run and trace.failure is None:
            trace.rank_faults = [*trace.rank_faults, *self._faults(program, trace)]

    @property
    def _group(self) -> RankHosts:
        assert isinstance(self._host, RankHosts)  # noqa: S101 - started so
        return self._host

    def _prepare(self, program: Program, sources: Mapping[str, Any], trace: ResponseTrace) -> bool:
        count = _count_of(program, self._ranks)
        refused = next((why for step in program.steps if (why := _refused(step, count, self._ranks))), None)
        if refused is None:
            self._group.resize(count)
            return super()._prepare(program, sources, trace)
        trace.untested, trace.shown = refused, frozenset()
        return False

    def repro_note(self, program: Program, sources: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what a repro needs to know about a program, with the number of ranks."""
        found = super().repro_note(program, sources)
        return None if found is None else {**found, "ranks": _count_of(program, self._ranks)}

    def _take(self, trace: ResponseTrace, reader: Reader) -> None:
        super()._take(trace, reader)
        placements, moved = reader.answer.placements, trace.translated.moved if trace.translated else ()
        trace.distributions = {
            index: Distribution((self._group.count,), (placements[place],))
            for index, place in enumerate(moved)
            if is_placement(placements.get(place, ""))
        }

    def _faults(self, program: Program, trace: Trace) -> list[RankFault]:
        """Return where the ranks disagreed in the last job, with steps of the recorded program."""
        if not isinstance(trace, ResponseTrace) or trace.untested is not None or trace.translated is None:
            return []
        last = program.calls[-1][0] if program.calls else len(program.steps) - 1
        found = []
        for fault in self._group.faults:
            key = fault.key if fault.key in {None, WHOLE_PASS} else trace.recorded(fault.key)
            if key is None and fault.key is not None:
                key = WHOLE_PASS  # The gradient is of no step of the recorded program; the ranks differ all the same.
            step = last if fault.step < 0 else recorded_step(fault.step, trace.translated.moved)
            found.append(fault._replace(step=step, key=key))
        return found


class _Batch:
    """A batch of ranks: one job at a time, so that no collective of one meets that of another."""

    def __init__(self, backend: GlobalTensorBackend, attempts: Sequence[Attempt], enter: Enter) -> None:
        self._backend, self._attempts, self._enter = backend, attempts, enter

    def traces(self) -> list[Trace]:
        return [
            self._backend.whole_run(attempt, _At(self._enter, position))
            for position, attempt in enumerate(self._attempts)
        ]

    def close(self) -> None:
        """Do nothing, because nothing has begun."""


class _At:
    """Reports the only case of a submission as the one at its position in the whole batch."""

    def __init__(self, enter: Enter, position: int) -> None:
        self._enter, self._position = enter, position

    def __call__(self, _: int, /) -> None:
        self._enter(self._position)

    def step(self, index: int, /) -> None:
        self._enter.step(index)

    def restored(self) -> AbstractContextManager[object]:
        return self._enter.restored()


def _placeable(step: Step, ranks: int) -> Step:
    """Return a placeholder as OneFlow can place it: replicated if it belongs to a module or cannot be distributed."""
    spec = step.spec
    if spec is None or not (step.in_setup or _is_fixed(spec, ranks)):
        return step
    return step._replace(args=(replace(spec, distribution=Distribution((ranks,), (REPLICATE,))),))


def _count_of(program: Program, ranks: int) -> int:
    """Return the number of ranks on which a program lies: those of the row, or the fewest for a shrunk one."""
    lies = any((spec := step.spec) is not None and _lies_on_two(spec) for step in program.steps)
    return FEWEST if lies else ranks


def _lies_on_two(spec: TensorSpec) -> bool:
    return spec.distribution is not None and spec.distribution.mesh == (FEWEST,)


def _refused(step: Step, count: int, ranks: int) -> Unsupported | None:
    """Return why an input cannot lie as a program says; ``None`` if it can.

    Args:
        step: A step of the program.
        count: The number of ranks of the group that it runs on.
        ranks: The number of ranks of the row.
    """
    spec = step.spec
    if spec is None or spec.distribution is None:
        return None
    if spec.distribution.mesh != (count,):
        mesh = " x ".join(map(str, spec.distribution.mesh))
        return Unsupported(
            UnsupportedReason.OUT_OF_SCOPE, f"its inputs lie on {mesh} ranks; the row has ranks: {ranks}"
        )
    if _is_fixed(spec, count) or (step.in_setup and not spec.distribution.is_replicated):
        detail = f"{spec.distribution} of a {spec.dtype} tensor of shape {list(spec.shape)} on {count} ranks"
        return Unsupported(UnsupportedReason.PLACEMENT_REFUSED, detail)
    return None


def _is_fixed(spec: TensorSpec, ranks: int) -> bool:
    """Whether OneFlow would end the process with this placement: no rows for a rank, or a dtype that it cannot send."""
    placement = spec.distribution.placements[0] if spec.distribution is not None else REPLICATE
    cut = dimension_of(placement)
    is_too_small = cut is not None and (cut >= len(spec.shape) or spec.shape[cut] < ranks)
    return is_too_small or (spec.dtype in _NOT_SENT and placement != REPLICATE)
