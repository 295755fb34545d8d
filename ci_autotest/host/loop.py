"""The host's loop: read a request, run its programs, write the response.

Where a framework computes in threads of its own, the tensors of several jobs are asked for as each of them ends and
waited for once: waiting costs more than computing what is small. An error may then be told late, in another job than
its own: where a job stops while others are waited for, or waiting fails, each is run again and waited for alone.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.host.backward import backward, failed_backward
from ci_autotest.host.binding import has, storage_of
from ci_autotest.host.cpu_affinity import Processor
from ci_autotest.host.deferred_reads import DeferredReads
from ci_autotest.host.forward import forward
from ci_autotest.host.graph_mode import as_graph
from ci_autotest.host.response import Answers
from ci_autotest.host.shared_program import SharedProgram
from ci_autotest.host.step_errors import failed
from ci_autotest.program.json_values import program_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from ci_autotest.host.frameworks.protocol import Framework
    from ci_autotest.host.trace import Run
    from ci_autotest.host.wire import Wire
    from ci_autotest.program.ir import Program

#: What stands for the step in the backward pass, and for a job and a step where there is none.
IN_BACKWARD: Final = -2
NOWHERE: Final = -1
#: Bytes of the tensors of jobs that wait to be told together.
WAITING_BYTES: Final = 1 << 24


class _Job(NamedTuple):
    """Hold what is to be run.

    Attributes:
        number: By which it is told which job is in flight.
        outline: What is known of the program already.
        program: Setup and body.
        tensors: Storage of each placeholder by key.
        cotangents: What is put into the outputs, by position; ``None``: forward only.
        snapshots: Whether every value is copied at its step.
        is_graph: Whether the body runs as one graph.
    """

    number: int
    shared_program: SharedProgram
    program: Program
    tensors: Mapping[str, np.ndarray]
    cotangents: Mapping[int, np.ndarray] | None
    snapshots: bool
    is_graph: bool


class _Ran(NamedTuple):
    """Hold what a job left, its tensors asked for."""

    job: _Job
    run: Run
    reading: DeferredReads


class Work:
    """Answer a worker's messages.

    Args:
        framework: Runs the programs.
        wire: Where answers go.
        place: Where the number of the job in flight and its step are told.
    """

    def __init__(self, framework: Framework, wire: Wire, place: memoryview) -> None:
        self._framework = framework
        self._wire = wire
        self._place = place
        self._is_late = hasattr(framework, "ask")
        self._gathered = Processor().gathered if getattr(framework, "polls", False) else nullcontext
        self._kept: dict[int, bytes] = {}
        self._last: _Ran | None = None

    def answer(self, message: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        """Do what a message asks for, and send what came of it."""
        if "fetch" in message:
            self._wire.send(b"{}", [self._kept[number] for number in message["fetch"]])
        elif "has" in message:
            self._wire.send(_encoded(self._about(message["has"])))
        elif "backward" in message:
            self._backward(message["backward"], buffers)
        else:
            self._kept.clear()
            outlines = [SharedProgram(program_of(plain)) for plain in message["outlines"]]
            with self._gathered():
                self._jobs([_job(told, outlines, buffers) for told in message["jobs"]])

    def _about(self, targets: list[str]) -> dict[str, Any]:
        """Return which of some targets the framework has, and its devices where its adapter says them."""
        devices: list[str] = getattr(self._framework, "devices", list)()
        return {"has": [has(self._framework, target) for target in targets], "devices": devices}

    def _jobs(self, jobs: Sequence[_Job]) -> None:
        waiting: list[_Ran] = []
        size_bytes = 0
        for job in jobs:
            ran = self._ran(job)
            waiting.append(ran)
            size_bytes += ran.reading.size_bytes
            if self._is_late and ran.run.has_stopped and len(waiting) > 1:
                self._one_by_one(waiting)
            elif job.is_graph or ran.run.has_stopped or size_bytes > WAITING_BYTES:
                self._tell(waiting)
            else:
                continue
            waiting, size_bytes = [], 0
        if waiting:
            self._tell(waiting)

    def _ran(self, job: _Job) -> _Ran:
        """Run a job, forward and as far back as it says, and ask for what it left."""
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
        ran = _Ran(job, run, DeferredReads(self._framework))
        if job.cotangents is not None and not run.has_stopped:
            self._go_back(ran, job.cotangents)
        self._note_calls(run)
        place[1] = NOWHERE  # what is left is reading the values
        if job.shared_program.keeps_memory:
            for leaf, memory in run.memory:
                ran.reading.hold(leaf, memory)
        for value in run.values:
            ran.reading.ask(value)
        self._last = ran
        return ran

    def _note_calls(self, run: Run) -> None:
        """Note which functions of the user's were called; a run that called none says nothing of them."""
        calls = getattr(self._framework, "calls", None)
        if calls is None:
            return
        run.calls = calls()
        untested = self._framework.untested()  # type: ignore[attr-defined]
        if untested is not None and not run.has_stopped:
            run.lacking = untested

    def _go_back(self, ran: _Ran, cotangents: Mapping[int, np.ndarray]) -> None:
        self._place[1] = IN_BACKWARD
        backward(ran.job.program, ran.run, cotangents, self._framework, ran.job.shared_program)
        for _, gradient in ran.run.gradients:
            ran.reading.ask(gradient)
        for put_in in ran.run.put_in.values():
            if put_in.memory is not None:
                ran.reading.hold(put_in.tensor, put_in.memory)
            ran.reading.ask(put_in.tensor)

    def _tell(self, waiting: Sequence[_Ran]) -> None:
        """Wait for what was asked for, and send an answer for each."""
        self._place[0] = waiting[0].job.number if len(waiting) == 1 else NOWHERE
        error = self._waited()
        if error is None:
            self._send(waiting)
        elif len(waiting) > 1:
            self._one_by_one(waiting)
        else:
            self._blame(waiting[0], error)
            self._send(waiting)

    def _one_by_one(self, waiting: Sequence[_Ran]) -> None:
        """Run jobs again, each waited for before the next."""
        for each in waiting:
            self._tell([self._ran(each.job)])

    def _waited(self) -> Exception | None:
        """Wait where the framework computes in threads of its own; return what that raised."""
        try:
            if self._is_late:
                self._framework.synchronize()
        except Exception as error:  # noqa: BLE001 - foreign code: its error is the outcome
            return error
        return None

    def _blame(self, ran: _Ran, error: Exception) -> None:
        """Note an error that waiting for one job raised, where nothing else stopped it, at the last of its calls."""
        ran.reading.forget()
        if not ran.run.has_stopped:
            program = ran.job.program
            index = program.calls[-1][0] if program.calls else 0
            failed(ran.run, program.steps[index], index, error, self._framework)

    def _backward(self, told: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        """Run the backward pass of the last program."""
        assert self._last is not None  # noqa: S101 - a worker asks for what it has run
        ran = self._last._replace(reading=DeferredReads(self._framework))
        self._go_back(ran, _cotangents(told["cotangents"], buffers))
        error = self._waited()
        if error is not None:
            ran.reading.forget()
            failed_backward(ran.run, error, self._framework)
        self._send([ran], has_values=False)

    def _send(self, waiting: Sequence[_Ran], *, has_values: bool = True) -> None:
        answers = Answers(self._framework, self._kept)
        for each in waiting:
            answers.add(each.run, each.reading, has_values=has_values)
        self._place[0] = NOWHERE
        self._wire.send(_encoded(answers.told), answers.buffers)


def _job(told: dict[str, Any], outlines: Sequence[SharedProgram], buffers: Sequence[memoryview]) -> _Job:
    """Return the job that plain values say (``backends/remote/request.py``)."""
    shared_program = outlines[told["outline"]]
    program = shared_program.program([spec for spec, _ in told["leaves"]])
    steps = program.steps
    tensors = {
        steps[index].target: storage_of(buffers[at], spec[0])
        for index, (spec, at) in zip(shared_program.placeholders, told["leaves"], strict=True)
    }
    cotangents = None if told["cotangents"] is None else _cotangents(told["cotangents"], buffers)
    return _Job(told["number"], shared_program, program, tensors, cotangents, told["snapshots"], told["graph"])


def _cotangents(told: dict[str, Any], buffers: Sequence[memoryview]) -> dict[int, np.ndarray]:
    return {
        int(position): storage_of(buffers[at], dtype).reshape(shape) for position, (dtype, shape, at) in told.items()
    }


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
