"""The host's loop: read a request, run its programs, write the response.

If a framework computes in its own threads, the host begins to read the tensors of each job as the job ends, and waits
once for several jobs, because waiting costs more than a small computation. An error may then surface late, in another
job. So if a job stops while others are pending, or if waiting fails, each job runs again on its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.host.backward import backward, record_backward_error
from ci_autotest.host.binding import has, storage_of
from ci_autotest.host.forward import as_graph, forward, record_error
from ci_autotest.host.response import DeferredReads, ResponseEncoder
from ci_autotest.host.shared_program import SharedProgram
from ci_autotest.program.json_values import program_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.host.trace import RunTrace
    from ci_autotest.host.wire import Wire
    from ci_autotest.program.ir import Program


#: In place of the index of a step: the backward pass; and no job or step at all.
IN_BACKWARD: Final = -2
NOWHERE: Final = -1
#: Bytes of tensors above which pending jobs are sent, which bounds the memory that they hold.
WAITING_BYTES: Final = 1 << 24


class _HostJob(NamedTuple):
    """One run that a worker requests.

    Attributes:
        number: Number that the progress beacon shows while the job runs.
        shared_program: Facts about the program that all cases of a test share.
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        cotangents: Elements by position of the output; ``None`` for a forward run only.
        snapshots: Whether every value is copied right after its step.
        is_graph: Whether the body runs as one graph.
    """

    number: int
    shared_program: SharedProgram
    program: Program
    tensors: Mapping[str, np.ndarray]
    cotangents: Mapping[int, np.ndarray] | None
    snapshots: bool
    is_graph: bool


class _JobRun(NamedTuple):
    """A job that has run, and whose tensors are being read."""

    job: _HostJob
    run: RunTrace
    reading: DeferredReads


class RequestHandler:
    """Handler of a worker's requests.

    Args:
        framework: The framework that runs the programs.
        wire: Receives the responses.
        place: Shared memory with the number of the current job and its step. The worker reads it after a crash.
    """

    def __init__(self, framework: Framework, wire: Wire, place: memoryview) -> None:
        self._framework = framework
        self._wire = wire
        self._place = place
        self._is_asynchronous = hasattr(framework, "begin_read")
        self._gathers = getattr(framework, "gathers", False)
        self._pinned = Processor().pinned if getattr(framework, "polls", False) else nullcontext
        self._kept: dict[int, bytes] = {}
        self._last: _JobRun | None = None

    def answer(self, message: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        """Handle one request and send the response."""
        if "fetch" in message:
            self._wire.send(b"{}", [self._kept[number] for number in message["fetch"]])
        elif "has" in message:
            self._wire.send(_encoded(self._about(message["has"])))
        elif "backward" in message:
            self._backward(message["backward"], buffers)
        else:
            # The worker fetches what it wants before it sends the next jobs.
            self._kept.clear()
            outlines = [SharedProgram(program_of(plain)) for plain in message["outlines"]]
            with self._pinned():
                self._jobs([_decoded_job(fields, outlines, buffers) for fields in message["jobs"]])

    def _about(self, targets: list[str]) -> dict[str, Any]:
        """Return which targets the framework has, and its devices if its adapter lists them."""
        devices: list[str] = getattr(self._framework, "devices", list)()
        return {"has": [has(self._framework, target) for target in targets], "devices": devices}

    def _jobs(self, jobs: Sequence[_HostJob]) -> None:
        pending: list[_JobRun] = []
        size_bytes = 0
        for job in jobs:
            finished = self._run(job)
            pending.append(finished)
            size_bytes += finished.reading.size_bytes
            if self._is_asynchronous and finished.run.has_stopped and len(pending) > 1:
                # The error may be that of an earlier job, whose computation was not finished yet.
                self._rerun_separately(pending)
            elif job.is_graph or finished.run.has_stopped or size_bytes > WAITING_BYTES:
                self._report(pending)
            else:
                continue
            pending, size_bytes = [], 0
        if pending:
            self._report(pending)

    def _run(self, job: _HostJob) -> _JobRun:
        """Run a job, with its backward pass if it has cotangents, and begin to read its tensors."""
        # Written before anything runs: after a crash the worker reads from it which job and step to blame.
        place = self._place
        place[0] = job.number
        execute = as_graph if job.is_graph else forward
        run = execute(
            job.program,
            job.tensors,
            self._framework,
            lambda index: place.__setitem__(1, index),
            snapshots=job.snapshots,
        )
        finished = _JobRun(job, run, DeferredReads(self._framework))
        if job.cotangents is not None and not run.has_stopped and self._has_backward():
            self._run_backward(finished, job.cotangents)
        self._note_calls(run)
        self._withdraw(run)
        place[1] = NOWHERE  # only reading the values is left
        # The memory of a leaf that no step can have overwritten need not be copied.
        if job.shared_program.keeps_memory:
            for leaf, memory in run.memory:
                finished.reading.provide(leaf, memory)
        for value in run.values:
            finished.reading.begin(value)
        self._last = finished
        return finished

    def _withdraw(self, run: RunTrace) -> None:
        """Drop what a stopped run of a rank has: other ranks may still run, so that nothing of it can be gathered."""
        if self._gathers and run.has_stopped:
            run.values, run.gradients, run.cotangents = [], [], {}

    def _has_backward(self) -> bool:
        """Whether the run has a backward pass; the user's functions may have none."""
        has_backward = getattr(self._framework, "has_backward", None)
        return has_backward is None or has_backward()

    def _note_calls(self, run: RunTrace) -> None:
        """Record which of the user's functions were called. A run that called none has not tested them."""
        calls = getattr(self._framework, "calls", None)
        if calls is None:
            return
        run.calls = calls()
        untested = self._framework.untested()  # type: ignore[attr-defined]
        if untested is not None and not run.has_stopped:
            run.lacking = untested

    def _run_backward(self, finished: _JobRun, cotangents: Mapping[int, np.ndarray]) -> None:
        self._place[1] = IN_BACKWARD
        backward(finished.job.program, finished.run, cotangents, self._framework, finished.job.shared_program)
        for _, gradient in finished.run.gradients:
            finished.reading.begin(gradient)
        for cotangent in finished.run.cotangents.values():
            if cotangent.memory is not None:
                finished.reading.provide(cotangent.tensor, cotangent.memory)
            finished.reading.begin(cotangent.tensor)

    def _report(self, pending: Sequence[_JobRun]) -> None:
        """Wait for the reads of these jobs, and send their results."""
        self._place[0] = pending[0].job.number if len(pending) == 1 else NOWHERE
        error = self._wait()
        if error is None:
            self._send(pending)
        elif len(pending) > 1:
            self._rerun_separately(pending)
        else:
            self._record_late_error(pending[0], error)
            self._send(pending)

    def _rerun_separately(self, pending: Sequence[_JobRun]) -> None:
        """Run jobs again, waiting for each before the next, so that an error surfaces in its own job."""
        for each in pending:
            self._report([self._run(each.job)])

    def _wait(self) -> Exception | None:
        """Wait for the framework's own threads, if it has any; return the error that this raises."""
        try:
            if self._is_asynchronous:
                self._framework.synchronize()
        except Exception as error:  # noqa: BLE001 - foreign code: its error is the outcome
            return error
        return None

    def _record_late_error(self, finished: _JobRun, error: Exception) -> None:
        """Record an error that waiting for one job raised, at its last call, unless the job stopped before."""
        finished.reading.forget()
        if not finished.run.has_stopped:
            program = finished.job.program
            index = program.calls[-1][0] if program.calls else 0
            record_error(finished.run, program.steps[index], index, error, self._framework)
        self._withdraw(finished.run)

    def _backward(self, request: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        """Run the backward pass of the last job."""
        assert self._last is not None  # noqa: S101 - a worker requests the backward pass of a job that it has run
        finished = self._last._replace(reading=DeferredReads(self._framework))
        self._run_backward(finished, _cotangents(request["cotangents"], buffers))
        error = self._wait()
        if error is not None:
            finished.reading.forget()
            record_backward_error(finished.run, error, self._framework)
        self._withdraw(finished.run)
        self._send([finished], has_values=False)

    def _send(self, pending: Sequence[_JobRun], *, has_values: bool = True) -> None:
        encoder = ResponseEncoder(self._framework, self._kept)
        for each in pending:
            encoder.add(each.run, each.reading, has_values=has_values)
        self._place[0] = NOWHERE
        self._wire.send(_encoded(encoder.results), encoder.buffers)


def _decoded_job(fields: dict[str, Any], outlines: Sequence[SharedProgram], buffers: Sequence[memoryview]) -> _HostJob:
    """Decode a job (``backends/framework/request.py`` encodes it)."""
    shared_program = outlines[fields["outline"]]
    program = shared_program.program([spec for spec, _ in fields["leaves"]])
    steps = program.steps
    tensors = {
        steps[index].target: storage_of(buffers[at], spec["dtype"])
        for index, (spec, at) in zip(shared_program.placeholders, fields["leaves"], strict=True)
    }
    cotangents = None if fields["cotangents"] is None else _cotangents(fields["cotangents"], buffers)
    return _HostJob(
        fields["number"], shared_program, program, tensors, cotangents, fields["snapshots"], fields["graph"]
    )


def _cotangents(fields: dict[str, Any], buffers: Sequence[memoryview]) -> dict[int, np.ndarray]:
    return {
        int(position): storage_of(buffers[at], dtype).reshape(shape) for position, (dtype, shape, at) in fields.items()
    }


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# CPU affinity of a host: all its threads on one processor while it works.
#
# Threads that poll each other for work keep two processors busy with the work of one. The second processor belongs to
# the worker, which prepares the next cases meanwhile. On one processor the threads take turns instead.


_TASKS = Path("/proc/self/task")


class Processor:
    """The processor that the calling thread is on, for all threads of this process.

    The system chooses it anew whenever it wakes the calling thread. So processes need no agreement, and no process is
    kept away from a free processor.
    """

    def __init__(self) -> None:
        # With OMP_NUM_THREADS above 1, threads share one computation and wait for each other in busy loops. Each then
        # needs a processor of its own.
        self._is_useful = sys.platform == "linux" and os.environ.get("OMP_NUM_THREADS") == "1"
        self._all = os.sched_getaffinity(0) if self._is_useful else set()
        self._here = -1

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep all threads on one processor inside the block; afterwards the calling thread may run anywhere again."""
        if not self._is_useful or len(self._all) == 1:
            yield
            return
        # Python's `os` does not have this function of Linux.
        here = ctypes.CDLL(None).sched_getcpu()
        # A thread may end before it is moved, and pinning only saves time.
        with suppress(OSError):
            if here == self._here:
                # The other threads are there still: only this one was let go.
                os.sched_setaffinity(0, {here})
            else:
                for task in _TASKS.iterdir():
                    os.sched_setaffinity(int(task.name), {here})
                self._here = here
        try:
            yield
        finally:
            with suppress(OSError):
                os.sched_setaffinity(0, self._all)
