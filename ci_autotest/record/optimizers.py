"""Optimizers of plain torch: their step is recorded as the in-place steps that it is made of, state included.

``torch.optim`` is Python over tensors. While it steps, the parameters that a body holds are replaced by the recorded
values that stand for them, and what it computes records itself. Its loops over lists of tensors and its fused kernels
are turned off meanwhile: they take no recorded values. A fused optimizer is a kernel of its own, and no part of this.

An optimizer may outlive its case. After the case it holds what it held before it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ci_autotest.record.context import CURRENT
from ci_autotest.record.plain_tensors import give_data
from ci_autotest.record.write_guard import refuse_unrecorded_writes, unrecorded

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ci_autotest.record.protocol import Recorder

_OPTIONS: Final = ("foreach", "fused")


class Held(NamedTuple):
    """Hold an optimizer as it was when it first stepped in a case: its state with copies of tensors, and its groups."""

    optimizer: Optimizer
    state: dict[Any, dict[str, Any]]
    groups: list[dict[str, Any]]


@lru_cache(maxsize=1)
def record_optimizers() -> None:
    """Record the steps of optimizers from now on, in this process, once; outside of a body they are torch's."""
    register_optimizer_step_pre_hook(_begin)
    register_optimizer_step_post_hook(_end)


def restore_optimizer(held: Held) -> None:
    """Give an optimizer what it held before the case, however the case ended."""
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
    refuse_unrecorded_writes(recorder)  # A gradient that was written to is not the one that is recorded.
    if id(optimizer) not in recorder.optimizers:
        recorder.optimizers[id(optimizer)] = Held(
            optimizer,
            {key: {name: _copied(one) for name, one in state.items()} for key, state in optimizer.state.items()},
            [{**group, "params": list(group["params"])} for group in optimizer.param_groups],
        )
    for group in optimizer.param_groups:
        group.update(dict.fromkeys([name for name in _OPTIONS if name in group], False))
        own = group["params"]
        values = [recorder.captured[id(one)][1] if id(one) in recorder.captured else one for one in own]
        _move_state(optimizer, own, values)
        states: Any = optimizer.state
        for value in values:
            _record_state(recorder, states.get(value, {}), value)
        group["params"] = values


def _end(optimizer: Optimizer, _args: object, _kwargs: object) -> None:
    """Put the parameters back, with what their recorded values hold now."""
    recorder = CURRENT.get()
    if recorder is None or id(optimizer) not in recorder.optimizers:
        return
    refuse_unrecorded_writes(recorder)  # A hook of the optimizer's own comes before this, and would be overwritten.
    for group, before in zip(optimizer.param_groups, recorder.optimizers[id(optimizer)].groups, strict=False):
        _move_state(optimizer, group["params"], before["params"])
        group["params"] = list(before["params"])
        group.update({name: before[name] for name in _OPTIONS if name in before})
        for tensor in group["params"]:
            give_data(recorder, tensor)


def _copied(one: Any) -> Any:
    with unrecorded():
        return one.detach().clone() if isinstance(one, torch.Tensor) else one


def _move_state(optimizer: Optimizer, left: list[Any], right: list[Any]) -> None:
    for one, other in zip(left, right, strict=True):
        if one is not other and one in optimizer.state:
            optimizer.state[other] = optimizer.state.pop(one)


def _record_state(recorder: Recorder, state: dict[str, Any], value: Any) -> None:
    """Make inputs of the tensors that an optimizer made when it was constructed; its count of steps stays plain."""
    for name, one in state.items():
        if isinstance(one, torch.Tensor) and one.shape == value.shape and name != "step":
            state[name] = recorder.capture(one)
