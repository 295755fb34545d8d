"""Operators with a planted fault of the last rank, which ranks on other nodes import by this name."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

if TYPE_CHECKING:
    from collections.abc import Callable

#: Resident memory that a rank may hold in the tests, and more than that.
MEMORY_BYTES = 1 << 30
_TOO_MANY_BYTES = 3 << 29


def _is_last() -> bool:
    return dist.is_initialized() and dist.get_rank() == dist.get_world_size() - 1


def right(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def differs(x: torch.Tensor) -> torch.Tensor:
    return x * (3 if _is_last() else 2)


def ends(x: torch.Tensor) -> torch.Tensor:
    if _is_last():
        os._exit(3)
    return x * 2


def fills(x: torch.Tensor) -> torch.Tensor:
    if _is_last():
        held = torch.ones(_TOO_MANY_BYTES, dtype=torch.uint8)
        while held.numel():  # Until it is ended.
            time.sleep(1)
    return x * 2


def waits(x: torch.Tensor) -> torch.Tensor:
    # The others go on into the sum over ranks that its rule says is missing.
    if _is_last():
        message = "the last rank raises"
        raise IndexError(message)
    return x * 2


def locally(x: torch.Tensor) -> torch.Tensor:
    # Right if the three ranks are dealt to two nodes in turn: the third one is the second one on the first node.
    if dist.is_initialized() and os.environ["LOCAL_RANK"] != str(dist.get_rank() // 2):
        return x * 3
    return x * 2


def _register(body: Callable[[torch.Tensor], torch.Tensor]) -> None:
    schema = "(Tensor x) -> Tensor"
    operator = torch.library.custom_op(f"remote::{body.__name__}", body, mutates_args=(), schema=schema)
    operator.register_fake(lambda x: x * 2)
    own = getattr(torch.ops.remote, body.__name__)
    given = Partial() if body is waits else Replicate()
    register_sharding(own.default)(lambda _: [([given], [Replicate()]), ([Shard(0)], [Shard(0)])])


for each in (right, differs, ends, fills, waits, locally):
    _register(each)
