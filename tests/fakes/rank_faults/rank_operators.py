"""Operators of torch, one for each fault, ``torch.ops.faults.NAME(x, rank)``: right, but for the fault on one rank."""

import torch
import torch.distributed as dist
from rank_faults import FAULTS
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.experimental import register_sharding


def _define(name, fault):
    def body(x, rank):
        if dist.is_initialized() and dist.get_rank() == rank:
            fault()
        return x * 2

    operator = torch.library.custom_op(
        f"faults::{name}", body, mutates_args=(), schema="(Tensor x, int rank) -> Tensor"
    )
    operator.register_fake(lambda x, rank: x * 2)
    register_sharding(getattr(torch.ops.faults, name).default)(lambda x, rank: [([Replicate()], [Replicate(), None])])


for _name, _fault in FAULTS.items():
    _define(_name, _fault)
