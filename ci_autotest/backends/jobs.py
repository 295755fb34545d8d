"""What a worker gives a host to do, and the trace that the answer is put into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.backends.told import elements_of
from ci_autotest.backends.trace import Trace
from ci_autotest.program.ir import CALL_FUNCTION, PLACEHOLDER, TensorSpec, output_refs
from ci_autotest.program.plain import plain_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.backends.mapping.translate import Translated
    from ci_autotest.program.ir import Program


class ToldTrace(Trace):
    """A trace that a host tells.

    Attributes:
        translated: What the host ran.
        expected: The reference's trace of the same program, where it is known.
        has_gone_back: Whether the backward pass was part of the run, or is none of this side's.
    """

    is_told = True

    def __init__(self, program: Program, expected: Trace | None, *, snapshots: bool) -> None:
        """Begin with a place for each step."""
        super().__init__()
        count = len(program.steps)
        self.values, self.facts = [None] * count, [None] * count
        if snapshots:
            self.observations = [None] * count
        self.expected = expected
        self.translated: Translated | None = None
        self.has_gone_back = False


def outside(program: Program) -> set[int]:
    """Return what is seen of a body that runs as one graph: its outputs, and the modules, whose state it may change."""
    modules = {i for i, step in enumerate(program.setup) if step.op == CALL_FUNCTION}
    return modules | {ref.index for ref in output_refs(program)}


def job_of(
    trace: ToldTrace,
    sources: Mapping[str, Any],
    cotangents: Mapping[int, Any] | None,
    buffers: list[memoryview],
    *,
    snapshots: bool = False,
    is_graph: bool = False,
) -> dict[str, Any]:
    """Return a job, the only one of its message, its tensors put into ``buffers``.

    Args:
        trace: Whose translated program is run.
        sources: Data of each placeholder by key.
        cotangents: Gradients to put in, by position of the output's tensors; ``None``: forward only.
        buffers: What is sent beside the job.
        snapshots: Whether every value is copied at its step.
        is_graph: Whether the body runs as one graph.
    """
    assert trace.translated is not None  # noqa: S101 - prepared
    program = trace.translated.program
    tensors: dict[str, tuple[str, int]] = {}
    for step in program.steps:
        if step.op == PLACEHOLDER and isinstance(spec := step.args[0], TensorSpec):
            buffers.append(elements_of(sources[step.target]))
            tensors[step.target] = spec.dtype, len(buffers) - 1
    return {
        "number": 0,
        "program": plain_program(program),
        "tensors": tensors,
        "cotangents": None if cotangents is None else placed(cotangents, buffers),
        "snapshots": snapshots,
        "graph": is_graph,
    }


def placed(cotangents: Mapping[int, Any], buffers: list[memoryview]) -> dict[str, Any]:
    """Return each gradient's dtype, shape and buffer, by position."""
    found = {}
    for position, weight in cotangents.items():
        buffers.append(elements_of(weight))
        dtype = str(weight.dtype).removeprefix("torch.")
        found[str(position)] = dtype, tuple(weight.shape), len(buffers) - 1
    return found
