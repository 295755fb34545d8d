"""Optimizers of plain torch: ``step()`` is recorded as the in-place operations that it performs, including its state.

``torch.optim`` is Python code over tensors. During ``step()`` the plain parameters are replaced by their recorded
values, so that each operation records itself. An optimizer of a recorded module holds recorded values already.
The ``foreach`` and ``fused`` implementations are turned off meanwhile, because they take no recorded values. So fused
optimizer kernels are not tested here.

An optimizer may outlive its case, so its state is restored after the case.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ci_autotest.errors import AuthorError
from ci_autotest.record.context import CURRENT
from ci_autotest.record.plain_tensors import copy_data
from ci_autotest.record.values import RecordedTensor, identity
from ci_autotest.record.write_guard import refuse_unrecorded_writes, unrecorded

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ci_autotest.record.recorder import Recorder

_OPTIONS: Final = ("foreach", "fused")


class Held(NamedTuple):
    """An optimizer before its first step in a case: its state, with copies of the tensors, and its parameter groups."""

    optimizer: Optimizer
    state: dict[Any, dict[str, Any]]
    groups: list[dict[str, Any]]


@lru_cache(maxsize=1)
def record_optimizers() -> None:
    """Install the hooks that record the steps of optimizers inside a body, once in this process."""
    register_optimizer_step_pre_hook(_begin)
    register_optimizer_step_post_hook(_end)


def restore_optimizer(held: Held) -> None:
    """Restore an optimizer to its state before the case, however the case ended."""
    state: Any = held.optimizer.state
    state.clear()
    state.update(held.state)
    for group, before in zip(held.optimizer.param_groups, held.groups, strict=False):
        group.clear()
        group.update(before)


def _begin(optimizer: Optimizer, _args: object, _kwargs: object) -> None:
    """Put recorded values in place of parameters."""
    recorder = CURRENT.get()
    if recorder is None:
        return
    refuse_unrecorded_writes(recorder)  # After such a write, a gradient differs from the recorded one.
    if id(optimizer) not in recorder.outside.optimizers:
        parameters = [identity(one) for group in optimizer.param_groups for one in group["params"]]
        if len(set(parameters)) < len(parameters):  # Torch does not see it: two reads of one parameter are two values.
            message = "some parameters appear in more than one parameter group, or twice in one: name each once."
            raise AuthorError(message)
        recorder.outside.optimizers[id(optimizer)] = Held(
            optimizer,
            {key: {name: _copied(one) for name, one in state.items()} for key, state in optimizer.state.items()},
            [{**group, "params": list(group["params"])} for group in optimizer.param_groups],
        )
    for group in optimizer.param_groups:
        # Both implementations pass tensors to kernels that accept no recorded values.
        group.update(dict.fromkeys([name for name in _OPTIONS if name in group], False))
        own = group["params"]
        values = [recorder.outside.captured[id(one)][1] if id(one) in recorder.outside.captured else one for one in own]
        _move_state(optimizer, own, values)
        states: Any = optimizer.state
        for value in values:
            _record_state(recorder, states.get(value, {}), value)
        group["params"] = values


def _end(optimizer: Optimizer, _args: object, _kwargs: object) -> None:
    """Put the plain parameters back, with the elements of their recorded values."""
    recorder = CURRENT.get()
    if recorder is None or id(optimizer) not in recorder.outside.optimizers:
        return
    refuse_unrecorded_writes(recorder)  # The user's own step hooks ran earlier; their writes would be lost below.
    for group, before in zip(optimizer.param_groups, recorder.outside.optimizers[id(optimizer)].groups, strict=False):
        _move_state(optimizer, group["params"], before["params"])
        group["params"] = list(before["params"])
        group.update({name: before[name] for name in _OPTIONS if name in before})
        for tensor in group["params"]:
            copy_data(recorder, tensor)


def _copied(one: Any) -> Any:
    if isinstance(one, RecordedTensor) or not isinstance(one, torch.Tensor):
        return one
    with unrecorded():
        return one.detach().clone()


def _move_state(optimizer: Optimizer, left: list[Any], right: list[Any]) -> None:
    for one, other in zip(left, right, strict=True):
        if one is not other and one in optimizer.state:
            optimizer.state[other] = optimizer.state.pop(one)


def _record_state(recorder: Recorder, state: dict[str, Any], value: Any) -> None:
    """Record state tensors from before the first step as inputs; the count of steps stays a plain tensor."""
    for name, one in state.items():
        if isinstance(one, torch.Tensor) and one.shape == value.shape and name != "step":
            state[name] = recorder.capture(one)
