"""Wrappers of modules, as a team writes them: right ones, and one for each planted fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Callable

Module = torch.nn.Module
#: A bucket that holds one parameter, in MB.
_SMALL_MB = 1e-6


def right(module: Module, ranks: int) -> Module:
    """Wrap as PyTorch's tutorial does."""
    assert ranks == dist.get_world_size()
    return DistributedDataParallel(module)


def _with_hook(hook: Callable[..., Any], module: Module, **options: Any) -> Module:
    wrapped = DistributedDataParallel(module, **options)
    wrapped.register_comm_hook(None, hook)  # type: ignore[no-untyped-call]
    return wrapped


# The annotations of a hook must be the types themselves, or none.
def _summed(_, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def _in_bfloat16(_, bucket):
    """Do as PyTorch's ``bf16_compress_hook``, which refuses the CPU."""
    half = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def sum_instead_of_average(module: Module, _: int) -> Module:
    return _with_hook(_summed, module)


def buffers_not_broadcast(module: Module, _: int) -> Module:
    return DistributedDataParallel(module, broadcast_buffers=False)


def unused_on_one_rank(module: Module, _: int) -> Module:
    """Leave the last layer's parameters out on rank 1, and let the wrapper look for unused parameters."""
    return DistributedDataParallel(_without_last(module), find_unused_parameters=True)


def unused_and_not_looked_for(module: Module, _: int) -> Module:
    return DistributedDataParallel(_without_last(module))


def _without_last(module: Module) -> Module:
    layer = [each for each in module.modules() if isinstance(each, torch.nn.Linear)][-1]
    if dist.get_rank() == 1:
        layer.register_forward_hook(
            lambda own, inputs, _: torch.nn.functional.linear(inputs[0], own.weight.detach(), own.bias.detach())
        )
    return module


def other_seed(module: Module, _: int) -> Module:
    """Initialize each rank from a seed of its own, after what the wrapper makes equal."""
    wrapped = DistributedDataParallel(module)
    torch.manual_seed(dist.get_rank())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-1, 1)
    return wrapped


def dropped_bucket(module: Module, _: int) -> Module:
    def dropped(_, bucket):
        if bucket.index() == 0:
            done: Any = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done
        return default_hooks.allreduce_hook(None, bucket)  # type: ignore[arg-type]

    return _with_hook(dropped, module, bucket_cap_mb=_SMALL_MB)


def no_sync_left_on(module: Module, _: int) -> Module:
    wrapped = DistributedDataParallel(module)
    wrapped.require_backward_grad_sync = False  # as inside of `no_sync()`
    return wrapped


def bfloat16_gradients(module: Module, _: int) -> Module:
    return _with_hook(_in_bfloat16, module)


def fsdp_reduced_in_bfloat16(module: Module, _: int) -> Any:
    return fully_shard(module, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16))


def nothing_returned(module: Module, _: int) -> None:
    DistributedDataParallel(module)


def _refuse(_: torch.Tensor) -> torch.Tensor:
    message = "no backward here"
    raise RuntimeError(message)


def raises_in_backward(module: Module, _: int) -> Module:
    for parameter in module.parameters():
        parameter.register_hook(_refuse)
    return DistributedDataParallel(module)


def raises_in_backward_on_one_rank(module: Module, ranks: int) -> Module:
    return raises_in_backward(module, ranks) if dist.get_rank() == 1 else DistributedDataParallel(module)


class Synchronised(torch.nn.BatchNorm1d):
    """A BatchNorm in training whose statistics are those of all ranks, on the CPU, which SyncBatchNorm refuses."""

    has_gradient = True
    share = 0.1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = torch.ones_like(x[:, 0])
        sums = torch.cat([share.sum().reshape(1), x.sum(0), x.square().sum(0)])
        if self.has_gradient:
            sums = all_reduce(sums)  # type: ignore[no-untyped-call]
        else:
            dist.all_reduce(sums.detach())
        count, mean, square = (
            sums[0],
            sums[1 : self.num_features + 1] / sums[0],
            sums[self.num_features + 1 :] / sums[0],
        )
        variance = square - mean.square()
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.share)
            self.running_var.lerp_(variance * count / (count - 1), self.share)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


class SynchronisedWithoutGradient(Synchronised):
    has_gradient = False


class SynchronisedWithOtherMomentum(Synchronised):
    share = 0.2


def _converted(module: Module, to: type[Synchronised]) -> Module:
    for owner in list(module.modules()):
        for name, child in list(owner.named_children()):
            if type(child) is torch.nn.BatchNorm1d:
                made = to(child.num_features)
                made.load_state_dict(child.state_dict())
                owner.add_module(name, made)
    return module


def synchronised(module: Module, _: int) -> Module:
    return DistributedDataParallel(_converted(module, Synchronised))


def fsdp_synchronised(module: Module, _: int) -> Any:
    return fully_shard(_converted(module, Synchronised))


def fsdp_synchronised_other_buffer(module: Module, ranks: int) -> Any:
    """Move on rank 1 what the body keeps itself, and what should be the same on all ranks."""
    wrapped = fsdp_synchronised(module, ranks)

    def move(*_: object) -> None:
        for buffer in list(module.buffers(recurse=False))[-1:]:
            buffer.mul_(2)

    if dist.get_rank() == 1:
        wrapped.register_forward_hook(move)
    return wrapped


def synchronised_without_gradient(module: Module, _: int) -> Module:
    return DistributedDataParallel(_converted(module, SynchronisedWithoutGradient))


def synchronised_with_other_momentum(module: Module, _: int) -> Module:
    return DistributedDataParallel(_converted(module, SynchronisedWithOtherMomentum))


def synchronised_by_torch(module: Module, _: int) -> Module:
    return DistributedDataParallel(torch.nn.SyncBatchNorm.convert_sync_batchnorm(module))


def fsdp_synchronised_by_torch(module: Module, _: int) -> Any:
    return fully_shard(torch.nn.SyncBatchNorm.convert_sync_batchnorm(module))


def fsdp_synchronised_and_refused(module: Module, _: int) -> Any:
    """Refuse every input, beside a SyncBatchNorm, which does not matter for it."""
    wrapped = fully_shard(torch.nn.SyncBatchNorm.convert_sync_batchnorm(module))

    def refuse(*_: object) -> None:
        message = "a fault of the wrapper"
        raise ValueError(message)

    wrapped.register_forward_pre_hook(refuse)
    return wrapped


class Around(torch.nn.Module):
    """A module around another one, as one that computes its forward pass a second time."""

    def __init__(self, inner: Module, factor: float) -> None:
        super().__init__()
        self.inner, self._factor = inner, factor

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x) * self._factor


def _within(module: Module, factor: float) -> Module:
    for owner in list(module.modules()):
        for name, child in list(owner.named_children()):
            owner.add_module(name, Around(child, factor))
    return DistributedDataParallel(module)


def within_others(module: Module, _: int) -> Module:
    """Put a module around each one."""
    return _within(module, 1.0)


def within_others_that_scale(module: Module, _: int) -> Module:
    return _within(module, 1.01)


def _norms(module: Module) -> list[torch.nn.BatchNorm1d]:
    return [each for each in module.modules() if isinstance(each, torch.nn.BatchNorm1d)]


def other_momentum(module: Module, _: int) -> Module:
    for each in _norms(module):
        each.momentum = 0.2
    return DistributedDataParallel(module)


def other_momentum_of_a_buffer(module: Module, _: int) -> Module:
    """Move what the body keeps by more than the body does."""
    wrapped = DistributedDataParallel(module)

    def move(*_: object) -> None:
        for buffer in module.buffers():
            buffer.mul_(1.5)

    if dist.get_rank() == 0:
        wrapped.register_forward_hook(move)
    return wrapped


def other_eps(module: Module, _: int) -> Module:
    for each in _norms(module):
        each.eps = 1e-2
    return DistributedDataParallel(module)


def evaluated_on_rank_1(module: Module, _: int) -> Module:
    wrapped = DistributedDataParallel(module)
    if dist.get_rank() == 1:
        wrapped.eval()
    return wrapped


def evaluated_on_rank_0(module: Module, _: int) -> Module:
    wrapped = DistributedDataParallel(module)
    if dist.get_rank() == 0:
        wrapped.eval()
    return wrapped


def fsdp_other_momentum(module: Module, _: int) -> Any:
    for each in _norms(module):
        each.momentum = 0.2
    return fully_shard(module)


def fsdp_other_count(module: Module, _: int) -> Any:
    """Count more batches on rank 1 than there are."""
    wrapped = fully_shard(module)

    def count(*_: object) -> None:
        for each in _norms(module):
            assert each.num_batches_tracked is not None
            each.num_batches_tracked.add_(5)

    if dist.get_rank() == 1:
        wrapped.register_forward_hook(count)
    return wrapped
