"""What a worker asks of a host, and the trace that the response fills."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from ci_autotest.backends.remote.response import elements_of
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Trace
from ci_autotest.program.ir import CALL_FUNCTION, PLACEHOLDER, TensorSpec, output_refs
from ci_autotest.program.json_values import plain_outline, plain_spec
from ci_autotest.program.refusal import ACCEPTED, Refusal, refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ci_autotest.backends.mapping.translation import Translated
    from ci_autotest.backends.remote.response import Reader
    from ci_autotest.program.ir import Program


class ResponseTrace(Trace):
    """A trace that a host tells.

    Attributes:
        translated: What the host ran.
        is_graph: Whether it ran the body as one graph.
        expected: The reference's trace of the same program, where it is known.
        has_gone_back: Whether the backward pass was part of the run, or is none of this side's.
        reader: Of what was told and is not in the trace yet.
        loader: Puts that into the trace.
    """

    is_remote = True

    def __init__(
        self, program: Program, expected: Trace | None, *, snapshots: bool = False, is_graph: bool = False
    ) -> None:
        super().__init__()
        count = len(program.steps)
        self.values, self.facts = [None] * count, [None] * count
        if snapshots:
            self.observations = [None] * count
        self.expected = expected
        self.is_graph = is_graph
        self.translated: Translated | None = None
        self.has_gone_back = False
        self.reader: Reader | None = None
        self.loader: Callable[[ResponseTrace, Reader], None] | None = None
        self._recorded: dict[Any, Any] | None = None
        self._refused = refusals(program.steps)

    def load(self) -> None:
        """Put what the host has sent into the trace, where it is not there yet."""
        if self.reader is not None and self.loader is not None:
            self.loader(self, self.reader)

    def tell_refusals(self) -> None:
        """Say of each step that the reference refused how this side did: where it ended the run, or by what it gave."""
        for index in self._refused:
            failure = self.failure
            if failure is not None and failure.step <= index:
                if failure.step < index or failure.kind == "NotImplementedError":
                    return
                self.values[index], self.failure = Refusal(failure.kind, failure.message), None
            elif not isinstance(self.values[index], Refusal):
                self.values[index], self.facts[index] = ACCEPTED, None
            if self.observations:
                self.observations[index] = observed(self.values[index])

    def recorded(self, key: int | tuple[int, str]) -> Any:
        """Return by its recorded name what a gradient that was told is with respect to."""
        if self._recorded is None:
            assert self.translated is not None  # noqa: S101 - prepared
            self._recorded = {place: i for i, place in enumerate(self.translated.moved) if place >= 0}
            self._recorded |= {place: own for own, place in self.translated.parameters.items()}
        if isinstance(key, int):
            return self._recorded.get(key)
        return self._recorded.get(key[0], key[0]), key[1]


def outside(program: Program) -> set[int]:
    """Return what is seen of a body that runs as one graph: its outputs, and the modules, whose state it may change."""
    modules = {i for i, step in enumerate(program.setup) if step.op == CALL_FUNCTION}
    return modules | {ref.index for ref in output_refs(program)}


class Message:
    """Collect jobs for a host.

    Attributes:
        jobs: Each of them.
        buffers: Their tensors.
    """

    def __init__(self) -> None:
        self._outlines: dict[bytes, int] = {}
        self.jobs: list[dict[str, Any]] = []
        self.buffers: list[memoryview] = []

    @property
    def head(self) -> dict[str, Any]:
        """What is sent with the buffers: what the programs are but for their placeholders, each once, and the jobs."""
        return {"outlines": list(map(msgspec.Raw, self._outlines)), "jobs": self.jobs}

    def add(
        self,
        trace: ResponseTrace,
        sources: Mapping[str, Any],
        cotangents: Mapping[int, Any] | None,
        *,
        number: int = 0,
        snapshots: bool = False,
    ) -> None:
        """Add a job.

        Args:
            trace: Whose translated program is run.
            sources: Data of each placeholder by key.
            cotangents: Gradients to put in, by position of the output's tensors; ``None``: forward only.
            number: By which the host tells which job is in flight.
            snapshots: Whether every value is copied at its step.
        """
        assert trace.translated is not None  # noqa: S101 - prepared
        program, buffers = trace.translated.program, self.buffers
        leaves = []
        for step in program.steps:
            if step.op == PLACEHOLDER and isinstance(spec := step.args[0], TensorSpec):
                leaves.append((plain_spec(spec), len(buffers)))
                buffers.append(elements_of(sources[step.target]))
        # As text: a number that is equal to another one, such as 1 and True, is not the same argument.
        shared_program = msgspec.json.encode(plain_outline(program))
        self.jobs.append(
            {
                "number": number,
                "outline": self._outlines.setdefault(shared_program, len(self._outlines)),
                "leaves": leaves,
                "cotangents": None if cotangents is None else placed(cotangents, buffers),
                "snapshots": snapshots,
                "graph": trace.is_graph,
            }
        )


class Outstanding:
    """Hold the traces of the batch that the host has not answered yet; all modes of one host share it.

    Attributes:
        traces: In the order of the host's jobs.
        restored: Block that is entered while they are waited for, because that batch says where it is.
    """

    def __init__(self) -> None:
        self.traces: list[ResponseTrace] = []
        self.restored: Callable[[], AbstractContextManager[object]] = nullcontext

    def take(self) -> list[ResponseTrace]:
        """Return the traces, which are outstanding no more."""
        found, self.traces = self.traces, []
        return found


def placed(cotangents: Mapping[int, Any], buffers: list[memoryview]) -> dict[str, Any]:
    """Return each gradient's dtype, shape and buffer, by position."""
    found = {}
    for position, weight in cotangents.items():
        buffers.append(elements_of(weight))
        dtype = str(weight.dtype).removeprefix("torch.")
        found[str(position)] = dtype, tuple(weight.shape), len(buffers) - 1
    return found
