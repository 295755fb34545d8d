"""Find results that nothing wrote to: fill free memory with a known number before the next run.

A result that nothing writes to holds what was there before: zeros in a new process, other results later. What one run
shows of it the next may not, and neither is the operator's word. With residue between two runs they differ, and the
operator is told from one that is merely now and then off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.program.ir import COMPLEX, FLOATING

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
    backend.fill_freed_memory([(_filled(tensor, number), count) for tensor, count in zip(results, counts, strict=True)])


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
