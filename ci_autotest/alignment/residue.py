"""Residue: memory that a number was written to, left where the next run is given its own.

A result that nothing writes to holds what was there before: zeros in a new process, other results later. What one run
shows of it the next may not, and neither is the operator's word. With residue between two runs they differ, and the
operator is told from one that is merely now and then off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.remote import RemoteBackend
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    OUTPUT,
    PLACEHOLDER,
    Program,
    Ref,
    Step,
    TensorSpec,
    contiguous_strides,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Trace

#: What is written, one after the other; every floating dtype holds them.
NUMBERS: Final = (1000.0, -500.0)
#: Blocks of each size: the inputs of the next run take some of them.
_BLOCKS: Final = 8
#: Sizes of one run that are left.
_SIZES_AT_MOST: Final = 16


def leave_residue(backend: Backend, trace: Trace, number: float) -> None:
    """Write to memory of the sizes of a run's results, in the process that has run it, and give it back.

    Args:
        backend: The side that ran.
        trace: What it left.
        number: What is written.
    """
    results = list({(tensor.dtype, tensor.shape, tensor.device): tensor for tensor in _results(trace)}.values())
    made = [torch.full_like(result, number, requires_grad=False) for result in results[:_SIZES_AT_MOST]]
    if not isinstance(backend, RemoteBackend):
        held = [tensor.clone() for tensor in made for _ in range(_BLOCKS)]
        del held, made
    elif not backend.is_graph:  # A graph plans its memory itself.
        # A host holds what it has run last until it has run something else.
        for tensors in ([], made, []):
            backend.run(_program(tensors), {f"r{i}": tensor for i, tensor in enumerate((*tensors, torch.zeros(1)))})


def _results(trace: Trace) -> Iterator[torch.Tensor]:
    for value in (*trace.values, *trace.gradients.values()):
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, torch.Tensor) and item.is_floating_point() and item.numel():
                yield item.detach()


def _program(tensors: list[Any]) -> Program:
    """Return a program whose results are blocks of the tensors' sizes, held until its end; it has one more input."""
    given = (*tensors, torch.zeros(1))
    steps = [Step(PLACEHOLDER, f"r{i}", (_spec(tensor),), name=f"r{i}") for i, tensor in enumerate(given)]
    adds = [
        Step(CALL_FUNCTION, "torch.add", (Ref(i), Ref(i)), name="residue")
        for i in range(len(tensors))
        for _ in range(_BLOCKS)
    ]
    outputs = tuple(Ref(len(steps) + i) for i in range(len(adds)))
    return Program((), (*steps, *adds, Step(OUTPUT, "output", outputs, name="output")))


def _spec(tensor: torch.Tensor) -> TensorSpec:
    shape = tuple(tensor.shape)
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), shape, contiguous_strides(shape), 0, tensor.numel())
