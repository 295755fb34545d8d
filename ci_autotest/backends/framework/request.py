"""A worker's request to a host: the jobs of a batch, and the batch that the host has not answered yet."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.program.ir import CALL_FUNCTION, output_refs
from ci_autotest.program.json_values import plain_outline, plain_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from ci_autotest.backends.framework.response_trace import ResponseTrace
    from ci_autotest.program.ir import Program


def outside(program: Program) -> set[int]:
    """Return what is visible of a body that runs as one graph: its outputs, and modules, whose state may change."""
    modules = {i for i, step in enumerate(program.setup) if step.op == CALL_FUNCTION}
    return modules | {ref.index for ref in output_refs(program)}


class HostMessage:
    """A message with jobs for a host.

    Attributes:
        jobs: The jobs, as JSON values.
        buffers: Elements of their tensors.
    """

    def __init__(self) -> None:
        self._outlines: dict[bytes, int] = {}
        self.jobs: list[dict[str, Any]] = []
        self.buffers: list[memoryview] = []

    @property
    def head(self) -> dict[str, Any]:
        """The JSON part: the jobs, and the programs without their placeholders' data, each distinct one once."""
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
            trace: Trace of the program, already translated.
            sources: Data of each placeholder by key.
            cotangents: Gradients of the outputs, by position; ``None`` to run forward only.
            number: Number by which the host reports the job in flight.
            snapshots: Whether every value is copied at its step.
        """
        assert trace.translated is not None  # noqa: S101 - prepared
        program, buffers = trace.translated.program, self.buffers
        leaves = []
        for step in program.steps:
            if (spec := step.spec) is not None:
                leaves.append((plain_spec(spec), len(buffers)))
                buffers.append(byte_view(sources[step.target]))
        # Programs are compared as text, because 1 and True are equal in Python and not the same argument.
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
    """The batch that the host has not answered yet; all modes of one host share it.

    Attributes:
        traces: Its traces, in the order of the host's jobs.
        restored: Context in which its answers are awaited, because its progress reports replace those of another batch.
    """

    def __init__(self) -> None:
        self.traces: list[ResponseTrace] = []
        self.restored: Callable[[], AbstractContextManager[object]] = nullcontext

    def take(self) -> list[ResponseTrace]:
        """Return the traces and forget them."""
        found, self.traces = self.traces, []
        return found


def placed(cotangents: Mapping[int, Any], buffers: list[memoryview]) -> dict[str, Any]:
    """Append each gradient's elements to the buffers; return its dtype, shape and buffer by position."""
    found = {}
    for position, weight in cotangents.items():
        buffers.append(byte_view(weight))
        dtype = DTYPE_NAMES[weight.dtype]
        found[str(position)] = dtype, tuple(weight.shape), len(buffers) - 1
    return found
