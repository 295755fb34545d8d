"""Find results that no kernel wrote to: fill free memory with a known number before the next run.

Uninitialized memory holds zeros in a new process and other results later, so a single run may look right by chance.
With a different known number in free memory before each of two runs, an uninitialized result differs between them. This
distinguishes it from an operator that is only sometimes wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.values.dtypes import DIFFERENTIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Trace

#: Numbers that are written in turn; every dtype of ``_DTYPES`` can represent them.
NUMBERS: Final = (1000.0, -500.0)
#: Dtypes of results whose memory is filled. Floats of 8 bits cannot represent 1000.
_DTYPES: Final = frozenset(getattr(torch, name) for name in DIFFERENTIABLE)
#: Number of blocks of each size, more than one because the inputs of the next run take some of them.
_BLOCKS: Final = 8
#: Most block sizes of one run.
_SIZES_AT_MOST: Final = 16
#: Bytes of all blocks of a run. Larger results get fewer blocks but at least one, as in the next run.
_BYTES_AT_MOST: Final = 1 << 25


def leave_residue(backend: Backend, trace: Trace, number: float) -> None:
    """Allocate, fill and free memory of the sizes of a run's results, in the process that ran it.

    Args:
        backend: The side that ran.
        trace: Of that run.
        number: The number to write.
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
    """Whether a tensor is strided and not nested, so that its elements lie in one storage."""
    return tensor.layout == torch.strided and not tensor.is_nested
