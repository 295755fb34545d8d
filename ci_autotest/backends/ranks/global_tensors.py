"""The backend ``module`` with ``ranks``: every tensor of a program lies on a group of hosts, as OneFlow's global ones.

How the inputs lie is drawn as for ``dtensor``, within the limits of OneFlow 0.9. It ends the process where a
dimension with fewer rows than ranks is cut, and where a collective on the CPU meets float16 or bfloat16. The parameters
of a module become global all at once, so that they are replicated.

A shrunk program may lie on two ranks. OneFlow cannot change the size of a group, so that the group is ended, and one of
that size is started.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.process import START_S, HostLostError, HostProcess
from ci_autotest.backends.framework.response import recorded_step
from ci_autotest.backends.framework.response_trace import ResponseTrace
from ci_autotest.backends.ranks.host_answers import WHOLE_PASS, Frame, InvalidAnswerError, agreed, of_invalid, of_lost
from ci_autotest.backends.ranks.placement_draw import Meshes, distributed
from ci_autotest.backends.ranks.processes.process_activity import ActivityWatch
from ci_autotest.backends.worker_side import ALONE, WorkerSide
from ci_autotest.errors import UnavailableError, Unsupported, UnsupportedReason
from ci_autotest.program.distribution import FEWEST, REPLICATE, Distribution, dimension_of, is_placement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.framework.interpreter import HostHello, Interpreter
    from ci_autotest.backends.framework.mapping.translation import Translator
    from ci_autotest.backends.framework.response import Reader
    from ci_autotest.backends.protocol import Enter, Submission
    from ci_autotest.backends.trace import Attempt, RankFault, Trace
    from ci_autotest.program.ir import Program, Step, TensorSpec
    from ci_autotest.program.note import HostNote
    from ci_autotest.values.schedule import Ability, Passes


# The hosts of a group, one process for each rank, used like a single host.
#
# Every message goes to all ranks, one job at a time, so that no rank begins a job before all have ended the one before:
# a collective of one job must never meet that of another. The first rank's answer is passed on if all agree. If a rank
# ends alone, or waits for ever because another one raised, the group is ended, and the next message starts it anew.


#: Seconds of work or sleep at one step after another rank has answered: no rank computes so much more than another.
_SILENCE_S: Final = 5.0
#: Seconds between two looks at the ranks.
_LOOK_S: Final = 0.05
#: What OneFlow reads; a row's ``env`` may set it.
_PORT: Final = "MASTER_PORT"
_LOOPBACK: Final = "127.0.0.1"


class _RankHosts:
    """The hosts of a group.

    Args:
        interpreter: The interpreter and the framework.
        count: Number of ranks.
        silence_s: Seconds of work or sleep without a move after which a rank waits for ever.
        worker: The worker whose candidate they are.

    Attributes:
        count: Number of ranks.
        hello: What the first rank's host is.
        faults: Where the ranks disagree in the last answer, with steps of the translated program.

    Raises:
        UnavailableError: A rank cannot be started, or they do not find each other.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        count: int,
        silence_s: float = _SILENCE_S,
        worker: WorkerSide = ALONE,
    ) -> None:
        self._interpreter, self.count, self._silence_s, self._worker = interpreter, count, silence_s, worker
        self.faults: list[RankFault] = []
        self._frames: dict[int, Frame] = {}
        self._ended: dict[int, HostLostError] = {}
        self._awaited: Sequence[int] = ()
        self._watches: dict[int, ActivityWatch] = {}
        self._begin()

    def resize(self, count: int) -> None:
        """Have so many ranks from the next message on; another number ends those that run."""
        if count != self.count:
            self.close()
            self.count = count

    def in_flight(self) -> tuple[int, int]:
        """Return the number of the job and the index of its step, of the rank that ended first, else of the first."""
        return self._hosts[next(iter(self._ended), 0)].in_flight()

    def send(self, message: object, buffers: Sequence[bytes | memoryview] = ()) -> None:
        """Send a message to all ranks. Elements that a host keeps are the same on all, so the first one sends them.

        Raises:
            UnavailableError: The ranks were ended and cannot be started again.
        """
        if self._is_closed:
            self._begin()
        is_fetch = isinstance(message, dict) and "fetch" in message
        self._awaited = range(1 if is_fetch else self.count)
        self._frames, self._ended = {}, {}
        self._watches = {rank: ActivityWatch(host.pid, self._silence_s) for rank, host in enumerate(self._hosts)}
        self._worker.wait_for(self._awaited)
        for rank in self._awaited:
            try:
                self._hosts[rank].send(message, buffers)
            except HostLostError as lost:
                self._ended[rank] = lost

    def is_ready(self, wait_s: float) -> bool:
        """Whether all ranks have answered within some seconds, or it is clear that one of them never will."""
        self._look(wait_s)
        left = self._left()
        # If all are at work, one may be slow, and the time limit of the case ends it.
        if not left or len(left) == len(self._awaited):
            return not left
        waits = {rank: self._watches[rank].waits((self._hosts[rank].in_flight(), len(left))) for rank in left}
        return all(waits.values())

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """Return the answer of the group.

        Raises:
            HostLostError: All ranks ended in the same way.
        """
        while not self.is_ready(_LOOK_S):
            pass
        frames, ended = self._frames, self._ended
        if len(frames) == len(self._awaited):
            try:
                found, faults = agreed([frames[rank] for rank in sorted(frames)])
            except InvalidAnswerError as error:
                self.close()
                found, self.faults = of_invalid(error, frames.keys() - {error.rank})
                return found
            # What a rank sends of the last job later says nothing new about that job.
            self.faults = faults if len(frames) == self.count else self.faults
            return found
        waiting = {rank: self._hosts[rank].in_flight()[1] for rank in self._left()}
        self.close()
        first = next(iter(ended.values()), None)
        if (
            first is not None
            and len(ended) == len(self._awaited)
            and {one.code for one in ended.values()} == {first.code}
        ):
            raise first
        try:
            gone = {rank: (one.ending, self._hosts[rank].in_flight()[1]) for rank, one in ended.items()}
            found, self.faults = of_lost(frames, gone, waiting)
        except InvalidAnswerError as error:
            found, self.faults = of_invalid(error, frames.keys() - {error.rank})
        return found

    def close(self) -> None:
        """End all ranks; a second call does nothing."""
        for host in self._hosts:
            host.close()
        self._is_closed = True

    def _begin(self) -> None:
        """Start the ranks, and wait until they have found each other."""
        interpreter, self._is_closed = self._interpreter, False
        self._hosts: list[HostProcess] = []
        port = interpreter.env.get(_PORT) or str(_free_port())
        try:
            for rank in range(self.count):
                own = {
                    "MASTER_ADDR": _LOOPBACK, **interpreter.env, _PORT: port,
                    "WORLD_SIZE": str(self.count), "RANK": str(rank), "LOCAL_RANK": str(rank),
                }  # fmt: skip
                self._hosts.append(HostProcess(interpreter._replace(env=own, is_rank=True), waits=False))
            for host in self._coming():
                host.greet()
            self._worker.wait_for(())
        except UnavailableError:
            self.close()
            raise
        self.hello: HostHello = self._hosts[0].hello

    def _coming(self) -> Iterator[HostProcess]:
        """Yield the ranks as they come: one that cannot start says so at once, and the others wait for it for ever."""
        waiting = {host.wire.read_fd: host for host in self._hosts}
        until = time.monotonic() + START_S
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], max(0.0, until - time.monotonic()))
            # When the time is up, the first that has not come raises the error.
            for fd in ready or list(waiting)[:1]:
                yield waiting.pop(fd)

    def _left(self) -> list[int]:
        """Return the ranks that have neither answered nor ended."""
        return [rank for rank in self._awaited if rank not in {*self._frames, *self._ended}]

    def _look(self, wait_s: float) -> None:
        """Take the answers that arrive within some seconds."""
        waiting = {self._hosts[rank].wire.read_fd: rank for rank in self._left()}
        ready, _, _ = select.select(list(waiting), [], [], wait_s) if waiting else ([], [], [])
        ready = ready or [fd for fd, rank in waiting.items() if self._hosts[rank].has_ended()]
        for fd in ready:
            try:
                self._frames[waiting[fd]] = Frame(*self._hosts[waiting[fd]].receive())
            except HostLostError as lost:
                self._ended[waiting[fd]] = lost
        if ready:
            self._worker.wait_for(self._left())


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_LOOPBACK, 0))
        port: int = found.getsockname()[1]
        return port


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

    def __init__(
        self,
        interpreter: Interpreter,
        translator: Translator,
        ranks: int,
        worker: WorkerSide = ALONE,
        *,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._ranks = ranks
        start = partial(_RankHosts, count=ranks, silence_s=silence_s, worker=worker)
        super().__init__(interpreter, translator, ends_with_host=worker.is_isolated, start=start)
        self.mode = f"{ranks} ranks"

    def in_mode(self, *, is_graph: bool) -> RemoteBackend:
        """Return this backend in eager or graph mode, with the same ranks."""
        found = super().in_mode(is_graph=is_graph)
        found.mode = ", ".join(part for part in (f"{self._ranks} ranks", found.mode) if part)
        return found

    @property
    def abilities(self) -> frozenset[Ability]:
        """Its body is called again: a program of many calls would be one of many placements."""
        return frozenset({"body"})

    def adapted(self, attempt: Attempt) -> Attempt:
        """Return an attempt whose inputs have a distribution."""
        own = super().adapted(attempt)
        program = distributed(own, Meshes(self._ranks, (self._ranks,)), ())
        return own._replace(program=program.with_steps(_placeable(step, self._ranks) for step in program.steps))

    def submit(self, attempts: Sequence[Attempt], enter: Enter) -> Submission:
        """Submit a batch of whole runs."""
        return _Batch(self, list(map(self.adapted, attempts)), enter)

    def whole_run(self, attempt: Attempt, enter: Enter) -> Trace:
        """Run an attempt forward and backward at once, and wait for it."""
        [trace] = super().submit([attempt], enter).traces()
        trace.load()
        trace.rank_faults = self._faults(attempt.program, trace)
        trace.is_kept = True
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
    def _group(self) -> _RankHosts:
        assert isinstance(self._host, _RankHosts)  # noqa: S101 - started so
        return self._host

    def _prepare(self, program: Program, sources: Mapping[str, Any], trace: ResponseTrace) -> bool:
        count = _count_of(program, self._ranks)
        refused = next((why for step in program.steps if (why := _refused(step, count, self._ranks))), None)
        if refused is None:
            self._group.resize(count)
            return super()._prepare(program, sources, trace)
        trace.untested, trace.shown = refused, frozenset()
        return False

    def repro_note(self, program: Program, sources: Mapping[str, Any]) -> HostNote | None:
        """Return what a repro needs to know about a program, with the number of ranks."""
        found = super().repro_note(program, sources)
        return None if found is None else msgspec.structs.replace(found, ranks=_count_of(program, self._ranks))

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

    def calls(self, _: int, passes: Passes, /) -> None:
        self._enter.calls(self._position, passes)

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
