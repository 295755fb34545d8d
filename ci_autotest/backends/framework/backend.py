"""The backend ``module``: a host in the candidate's interpreter runs the programs, and its responses are compared."""

from __future__ import annotations

import shutil
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch

from ci_autotest.backends.framework.process import HostLostError, HostProcess, end_as
from ci_autotest.backends.framework.request import HostMessage, Outstanding, outside, placed
from ci_autotest.backends.framework.response import ResponseError, about_of, readers_of, recorded_step
from ci_autotest.backends.framework.response_trace import ResponseTrace
from ci_autotest.backends.input_copies import contiguous_spec
from ci_autotest.backends.protocol import Backend, out_of_scope
from ci_autotest.errors import Unsupported, UnsupportedError, UnsupportedReason
from ci_autotest.host.loop import NOWHERE
from ci_autotest.host.main import OWN_FAULT
from ci_autotest.program.hook_names import idle_hooks
from ci_autotest.program.ir import CALL_FUNCTION, HOOK, OUTPUT, PLACEHOLDER, REGISTERS, Program, Ref, Step
from ci_autotest.program.json_values import plain_program
from ci_autotest.program.note import HostNote
from ci_autotest.program.refusal import refusals
from ci_autotest.values.schedule import Passes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ci_autotest.backends.framework.interpreter import Interpreter
    from ci_autotest.backends.framework.mapping.translation import Translated, Translator
    from ci_autotest.backends.framework.process import Host
    from ci_autotest.backends.framework.response import HostDescription, Reader
    from ci_autotest.backends.protocol import Enter, Submission
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.values.schedule import Ability


_HOOKS: Final = frozenset({*HOOK, *REGISTERS})


class RemoteBackend(Backend):
    """Execute programs in another interpreter.

    Args:
        interpreter: The interpreter and the framework's module.
        translator: Translates programs to the framework.
        ends_with_host: Whether this process ends as its host ends; if not, a lost host is an exception.
        start: Starts the host; ``None`` for a single process.

    Attributes:
        is_graph: Whether each body runs as one graph, of which only inputs and outputs are visible.

    Raises:
        UnavailableError: The host cannot be started.
    """

    batches_ahead = 1
    is_in_process = False

    def __init__(
        self,
        interpreter: Interpreter,
        translator: Translator,
        *,
        ends_with_host: bool = False,
        start: Callable[[Interpreter], Host] | None = None,
    ) -> None:
        self.on_step: Callable[[int], None] | None = None
        self.is_graph = False
        self.shows_steps = True
        self._translator = translator
        self._ends_with_host = ends_with_host
        self._interpreter = interpreter
        self.table = translator.table
        self._start = start or HostProcess
        self._host = self._start(interpreter)
        self._channel = Channel(self._host)
        self.hello = self._host.hello
        self.version, self.libraries = self.hello.version, self.hello.libraries
        self._in_flight: Translated | None = None
        self._outstanding = Outstanding()

    def in_mode(self, *, is_graph: bool) -> RemoteBackend:
        """Return this backend in eager or graph mode, with the same host and the same outstanding batch."""
        found = copy(self)
        found.is_graph, found.shows_steps = is_graph, not is_graph
        in_graph = "graph" if self.hello.graph_has_backward else "graph, forward only"
        found.mode = in_graph if is_graph else ""
        return found

    @property
    def abilities(self) -> frozenset[Ability]:
        """A program of several calls; a graph is made anew for each run."""
        return frozenset({"steps"}) if self.shows_steps else frozenset()

    def submit(self, attempts: Sequence[Attempt], enter: Enter) -> Submission:
        """Send the host a batch, forward and backward, and return while it runs.

        The answers to the previous batch are read first, so that the two sides never wait for each other to read.
        """
        message, traces = HostMessage(), []
        for number, attempt in enumerate(attempts):
            own = self.narrowed(attempt)
            trace = ResponseTrace(own.program, attempt.trace, is_graph=self.is_graph)
            traces.append(trace)
            outside_scope = out_of_scope(self, attempt)
            if outside_scope is not None:
                _left_out(trace, outside_scope)
            elif self._prepare(own.program, attempt.sources, trace):
                trace.loader = self._load
                trace.has_gone_back = True
                cotangents = attempt.cotangents or None if trace.has_backward else None
                message.add(trace, attempt.sources, cotangents, number=number)
                enter.calls(number, Passes.FORWARD if cotangents is None else Passes.BOTH)
        if attempts:
            enter(0)
        with self._watched():
            self._drain()
            self._outstanding.restored = enter.restored
            self._outstanding.traces = [trace for trace in traces if trace.untested is None]
            if message.jobs:
                self._channel.send(message, enter)
        return _HostBatch(self, traces)

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - a host reports values at the end of the run
    ) -> Trace:
        """Run the program forward."""
        with self._watched():
            self._drain()
            trace = ResponseTrace(program, None, snapshots=snapshots, is_graph=self.is_graph)
            if self._prepare(program, sources, trace):
                self._in_flight = trace.translated
                message = HostMessage()
                message.add(trace, sources, None, snapshots=snapshots)
                self._channel.send(message)
                reader = self._channel.next()
                self._note_calls(trace, reader)
                self._take(trace, reader)
            return trace

    def owes(self, traces: list[ResponseTrace]) -> bool:
        """Whether the host has not yet answered a batch."""
        outstanding = {id(trace) for trace in self._outstanding.traces}
        return any(id(trace) in outstanding for trace in traces)

    def settle(self) -> None:
        """Wait for the answers to the submitted batch."""
        with self._watched():
            self._drain()

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:  # noqa: ARG002
        """Run the backward pass of the program that ran last, unless the run included it."""
        assert isinstance(trace, ResponseTrace)  # noqa: S101 - made above
        if trace.has_gone_back or trace.failure is not None or trace.untested is not None:
            return
        assert trace.translated is self._in_flight  # noqa: S101 - the host differentiates what it ran last
        buffers: list[memoryview] = []
        with self._watched():
            self._channel.send_backward(placed(cotangents, buffers), buffers)
            reader = self._channel.next()
            trace.take_gradients(reader)
            if reader.answer.lacking is not None:  # What the forward pass gave is there, and is compared.
                trace.lack_backward(self._by_name(reader.answer.lacking))
        trace.has_gone_back = True

    def about(self, targets: Sequence[str]) -> HostDescription:
        """Return which of some targets the framework has, and its devices.

        Raises:
            HostLostError: The host is gone, or sent an invalid answer.
        """
        with self._watched():
            self._drain()
            self._host.send({"has": list(targets)})
            return about_of(self._host.receive()[0], len(targets))

    def as_graph(self) -> Backend | None:
        """Return this backend in graph mode; ``None`` if the framework has none, or this is it."""
        return self.in_mode(is_graph=True) if self.hello.has_graph and not self.is_graph else None

    def as_eager(self) -> Backend | None:
        """Return this backend in eager mode if it is in graph mode, else ``None``."""
        return self.in_mode(is_graph=False) if self.is_graph else None

    def fill_freed_memory(self, blocks: Sequence[tuple[torch.Tensor, int]]) -> None:
        """Write to memory of the host, one dtype at a time, because a framework may lack addition for some dtypes."""
        if self.is_graph:
            return  # A graph plans its own memory, so that freed memory does not come back as a result.
        by_dtype: dict[torch.dtype, list[tuple[torch.Tensor, int]]] = {}
        for tensor, count in blocks:
            by_dtype.setdefault(tensor.dtype, []).append((tensor, count))
        # A host keeps the values of its last program until it runs another one, so an empty one goes first and last.
        for own in ([], *by_dtype.values(), []):
            program, sources = _filling_program(own)
            self.run(program, sources)

    def repro_note(self, program: Program, sources: Mapping[str, Any]) -> HostNote | None:
        """Return what a repro needs to know about a program; ``None`` if the program cannot run."""
        try:
            translated = self._translator.translated(program, sources)
        except UnsupportedError:
            return None
        return HostNote(
            module=self._interpreter.module,
            version=self.hello.version,
            python=shutil.which(self._interpreter.python) or self._interpreter.python,
            on=self.hello.libraries.get("python", ""),
            graph=self.is_graph,
            program=plain_program(translated.program),
            moved=list(translated.moved),
            parameters=[(index, name, place) for (index, name), place in translated.parameters.items()],
        )

    def close(self) -> None:
        """End the host."""
        self._host.close()

    def _prepare(self, program: Program, sources: Mapping[str, Any], trace: ResponseTrace) -> bool:
        """Translate a program; return whether there is anything to run."""
        trace.has_flags = self.hello.has_flags
        idle = idle_hooks(program.steps)
        if any(not _HOOKS.isdisjoint(step.modes) for i, step in enumerate(program.steps) if i not in idle):
            detail = "hooks cannot run in another interpreter"
            return _left_out(trace, Unsupported(UnsupportedReason.NO_COUNTERPART, detail))
        if self.is_graph and refusals(program.steps):
            detail = "a graph cannot contain a step that is expected to be refused"
            return _left_out(trace, Unsupported(UnsupportedReason.NO_GRAPH, detail))
        try:
            trace.translated = self._translator.translated(program, sources)
        except UnsupportedError as error:
            return _left_out(trace, error.why)
        moved = trace.translated.moved
        if self.is_graph:
            trace.has_flags = False  # A graph's outputs are never leaves, not even an output that is an input.
            trace.has_backward = self.hello.graph_has_backward
            trace.has_gone_back = not trace.has_backward
            trace.shown = frozenset(i for i in outside(program) if moved[i] >= 0)
        elif -1 in moved:  # Lowered modules and idle hooks have no counterpart.
            trace.shown = frozenset(i for i, place in enumerate(moved) if place >= 0)
        self.case_scope.mark(trace)
        return True

    def _load(self, trace: ResponseTrace, reader: Reader) -> None:
        with self._watched():
            self._take(trace, reader)

    def _drain(self) -> None:
        """Read the answers to the submitted batch, and fetch elements that the host drops when the next one arrives."""
        owed = self._outstanding.take()
        with self._outstanding.restored() if owed else nullcontext():
            for trace in owed:
                trace.reader = self._channel.next()
                trace.left_out = trace.reader.answer.left_out
                self._note_calls(trace, trace.reader)
            for trace in owed:
                if trace.reader is not None and trace.reader.answer.has_kept:
                    self._take(trace, trace.reader)

    def _note_calls(self, trace: ResponseTrace, reader: Reader) -> None:
        """Note which of the user's functions the host called."""
        trace.calls = trace.answered = reader.answer.calls

    def _take(self, trace: ResponseTrace, reader: Reader) -> None:
        trace.reader = None
        if reader.answer.lacking is not None:
            _left_out(trace, self._by_name(reader.answer.lacking))
        else:
            trace.take(reader)

    def _by_name(self, lacking: Unsupported) -> Unsupported:
        """Return what the framework lacks, with its name."""
        return lacking._replace(detail=f"{self._interpreter.module} {self.hello.version}: {lacking.detail}")

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Handle a lost host, and one that sends an invalid answer: end as it ended, or raise ``HostLostError``."""
        try:
            yield
        except ResponseError as error:
            self._host.close()
            self._give_up(HostLostError(f"candidate '{self._interpreter.candidate}': {error}", 1), error)
        except HostLostError as lost:
            self._channel.report(is_lost=True)
            if self.on_step is not None and self._in_flight is not None:
                step = self._host.in_flight()[1]
                self.on_step(step if step < 0 else recorded_step(step, self._in_flight.moved))
            self._give_up(lost, lost)

    def _give_up(self, lost: HostLostError, cause: Exception) -> NoReturn:
        # After a fault of our own code in the host, this worker must not end as if the candidate had crashed.
        if self._ends_with_host and lost.code != OWN_FAULT:
            end_as(lost)
        self._host = self._start(self._interpreter)  # The next program gets a fresh host.
        self._channel = Channel(self._host)
        self._outstanding.take()
        raise lost from cause


class _HostBatch:
    """A batch that a host runs; its traces keep the host's responses until they are loaded."""

    def __init__(self, backend: RemoteBackend, traces: list[ResponseTrace]) -> None:
        self._backend, self._traces = backend, traces

    def traces(self) -> list[ResponseTrace]:
        if self._backend.owes(self._traces):
            self._backend.settle()
        return self._traces

    def close(self) -> None:
        with suppress(HostLostError):
            self._backend.settle()


def _left_out(trace: Trace, why: Unsupported) -> bool:
    """Note why a program is not compared, and that none of its values is shown: it did not run."""
    trace.untested, trace.shown = why, frozenset()
    return False


# A program that writes numbers to a host's free memory and releases it.


def _filling_program(blocks: Sequence[tuple[torch.Tensor, int]]) -> tuple[Program, dict[str, torch.Tensor]]:
    """Return a program and its inputs; the results are blocks of memory with numbers in them, kept until its end.

    Args:
        blocks: Tensors of one dtype with half of each number, and how many blocks of that size to make.
    """
    given = [*(tensor for tensor, _ in blocks), torch.zeros(1)]
    steps = [Step(PLACEHOLDER, f"r{i}", (contiguous_spec(tensor),), name=f"r{i}") for i, tensor in enumerate(given)]
    adds = [
        Step(CALL_FUNCTION, "torch.add", (Ref(i), Ref(i)), name="residue")
        for i, (_, count) in enumerate(blocks)
        for _ in range(count)
    ]
    outputs = tuple(Ref(len(steps) + i) for i in range(len(adds)))
    program = Program((), (*steps, *adds, Step(OUTPUT, "output", outputs, name="output")))
    return program, {f"r{i}": tensor for i, tensor in enumerate(given)}


# The channel to a host: requests, their responses in order, and the job that the host is working on.


#: Seconds between two looks at the job in flight while an answer is awaited.
_LOOK_S: Final = 0.05


class Channel:
    """The channel to one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._received: deque[Reader] = deque()
        self._owed = 0
        self._on_job: Callable[[int], None] | None = None
        self._seen = (NOWHERE, NOWHERE)

    def send(self, message: HostMessage, on_job: Callable[[int], None] | None = None) -> None:
        """Send jobs to the host, which owes an answer to each.

        Args:
            message: The jobs.
            on_job: Called with the number of the job in flight, while answers are awaited and when the host is lost.

        Raises:
            HostLostError: The host is gone.
        """
        self._on_job, self._seen = on_job, (NOWHERE, NOWHERE)
        self._owed += len(message.jobs)
        self._host.send(message.head, message.buffers)

    def send_backward(self, cotangents: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        """Request the backward pass of the job that ran last.

        Raises:
            HostLostError: The host is gone.
        """
        self._owed += 1
        self._host.send({"backward": {"cotangents": cotangents}}, buffers)

    def next(self) -> Reader:
        """Return the next answer.

        Raises:
            HostLostError: The host is gone.
            ResponseError: It sent an invalid answer, or more answers than jobs.
        """
        while not self._received:
            self._wait()
            received = readers_of(*self._host.receive(), self._fetch)
            self._owed -= len(received)
            if self._owed < 0:
                message = f"the host sent more answers than it had jobs ({-self._owed} more)."
                raise ResponseError(message)
            self._received.extend(received)
        return self._received.popleft()

    def _wait(self) -> None:
        while not self._host.is_ready(_LOOK_S):
            self.report()

    def report(self, *, is_lost: bool = False) -> None:
        """Report the job in flight, if it or its step has changed since the last report.

        Args:
            is_lost: Whether the host is gone. Its job is then reported again, because another batch may have been
                reported meanwhile. If no job was in flight, the first one is reported: the host was waiting for the
                results of all of them.
        """
        job, step = self._host.in_flight()
        if is_lost:
            self._seen, job = (NOWHERE, NOWHERE), max(job, 0) if self._owed else job
        if self._on_job is not None and job != NOWHERE and (job, step) != self._seen:
            self._seen = job, step
            self._on_job(job)

    def _fetch(self, numbers: list[int]) -> list[memoryview]:
        self._host.send({"fetch": numbers})
        return self._host.receive()[1]
