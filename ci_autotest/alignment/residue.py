"""Residue: memory that a number was written to, left where the next run is given its own.

A result that nothing writes to holds what was there before: zeros in a new process, other results later. What one run
shows of it the next may not, and neither is the operator's word. With residue between two runs they differ, and the
operator is told from one that is merely now and then off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.remote import RemoteBackend
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    COMPLEX,
    FLOATING,
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

#: What is written, one after the other; every dtype of ``_DTYPES`` holds them.
NUMBERS: Final = (1000.0, -500.0)
#: Dtypes of results whose memory is written to: those of programs that are no integers. One of 8 bits holds no 1000.
_DTYPES: Final = frozenset(getattr(torch, name) for name in FLOATING | COMPLEX)
#: Blocks of each size: the inputs of the next run take some of them.
_BLOCKS: Final = 8
#: Sizes of one run that are left.
_SIZES_AT_MOST: Final = 16
#: Bytes of a run's blocks in all: larger results get fewer blocks, and one each at the least, as the next run has.
_BYTES_AT_MOST: Final = 1 << 25


def leave_residue(backend: Backend, trace: Trace, number: float) -> None:
    """Write to memory of the sizes of a run's results, in the process that has run it, and give it back.

    Args:
        backend: The side that ran.
        trace: What it left.
        number: What is written.
    """
    results = list({(tensor.dtype, tensor.shape, tensor.device): tensor for tensor in _results(trace)}.values())
    results = results[:_SIZES_AT_MOST]
    room = _BYTES_AT_MOST // max(len(results), 1)
    counts = [max(1, min(_BLOCKS, room // result.nbytes)) for result in results]
    if not isinstance(backend, RemoteBackend):
        held = [_filled(tensor, number) for tensor, count in zip(results, counts, strict=True) for _ in range(count)]
        del held
    elif not backend.is_graph:  # A graph plans its memory itself.
        made = [(_filled(tensor, number), count) for tensor, count in zip(results, counts, strict=True)]
        _leave_abroad(backend, made)


def _leave_abroad(backend: RemoteBackend, made: list[tuple[torch.Tensor, int]]) -> None:
    """Write in a host's process, for each dtype by itself: the framework may not add numbers of all of them."""
    by_dtype: dict[torch.dtype, list[tuple[torch.Tensor, int]]] = {}
    for tensor, count in made:
        by_dtype.setdefault(tensor.dtype, []).append((tensor, count))
    # A host holds what it has run last until it has run something else.
    for blocks in ([], *by_dtype.values(), []):
        given = [*(tensor for tensor, _ in blocks), torch.zeros(1)]
        program = _program(given, [count for _, count in blocks])
        backend.run(program, {f"r{i}": tensor for i, tensor in enumerate(given)})


def _filled(result: torch.Tensor, number: float) -> torch.Tensor:
    return torch.full(result.shape, number, dtype=result.dtype, device=result.device)


def _results(trace: Trace) -> Iterator[torch.Tensor]:
    for value in (*trace.values, *trace.gradients.values()):
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, torch.Tensor) and item.dtype in _DTYPES and _is_plain(item) and item.numel():
                yield item.detach()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its elements lie in one piece of memory."""
    return tensor.layout == torch.strided and not tensor.is_nested


def _program(given: list[torch.Tensor], counts: list[int]) -> Program:
    """Return a program whose results are blocks of the inputs' sizes, held until its end; the last has none."""
    steps = [Step(PLACEHOLDER, f"r{i}", (_spec(tensor),), name=f"r{i}") for i, tensor in enumerate(given)]
    adds = [
        Step(CALL_FUNCTION, "torch.add", (Ref(i), Ref(i)), name="residue")
        for i, count in enumerate(counts)
        for _ in range(count)
    ]
    outputs = tuple(Ref(len(steps) + i) for i in range(len(adds)))
    return Program((), (*steps, *adds, Step(OUTPUT, "output", outputs, name="output")))


def _spec(tensor: torch.Tensor) -> TensorSpec:
    shape = tuple(tensor.shape)
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), shape, contiguous_strides(shape), 0, tensor.numel())
