"""Undefined results: drop differences in results that are not unique, and differences that only follow from them.

If outputs of an operator in ``properties.table`` differ, their defined properties are checked. If these hold, the
outputs are no misalignment. Differences in values computed from them are doubtful: they count only if a step is
misaligned alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ci_autotest.alignment.properties.call import SideCall, draws_inside
from ci_autotest.alignment.properties.table import DRAWN_INSIDE, PropertyQuestion, is_free, row_of
from ci_autotest.backends.nest import tensors_in
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.host.steps import materialize
from ci_autotest.program.edit import reached, used_by
from ci_autotest.program.ir import CALL_MODULE, is_unpacking
from ci_autotest.values.verdict import Misalignment

if TYPE_CHECKING:
    from ci_autotest.alignment.properties.table import PropertyRow
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program, Step


class Settled(NamedTuple):
    """Differences, separated by whether they are certain misalignments.

    Attributes:
        sure: Differences in defined results.
        doubtful: Differences that follow from a choice that an operator leaves open.
    """

    sure: list[Misalignment]
    doubtful: list[Misalignment]


class _Open(NamedTuple):
    """A call that leaves a choice, with the indices of its output or of its unpacked outputs, by position."""

    at: int
    row: PropertyRow
    outputs: dict[int, int]


def settle(differences: list[Misalignment], program: Program, candidate: Trace, reference: Trace) -> Settled:
    """Separate certain misalignments from those that follow from an open choice.

    Args:
        differences: All differences, in order.
        program: The program that ran.
        candidate: Trace with snapshots.
        reference: Trace with snapshots of the same steps.
    """
    if not differences:
        return Settled([], [])
    opened = (_open(program, i, step, candidate, reference) for i, step in program.numbered)
    found = [item for item in opened if item is not None]
    if not found:
        return Settled(differences, [])
    chosen: set[int] = set()
    broken: dict[int, str] = {}
    for call in found:
        free = {call.outputs[position] for position in _free(call) if position in call.outputs}
        differs = any(item.step in free and item.kind == "value" for item in differences)
        # A compiler may not show the output, and what is computed from it may differ all the same.
        is_hidden = candidate.shown is not None and not free <= candidate.shown
        if not differs and not (is_hidden and free):
            continue
        problem = _question(call, program, candidate, reference).answer if differs else ""
        if problem:
            broken.update(dict.fromkeys(free, problem))
        else:
            chosen |= free
    return _split(differences, program, chosen, broken)


def _split(differences: list[Misalignment], program: Program, chosen: set[int], broken: dict[int, str]) -> Settled:
    tainted = _descendants(program, chosen)
    sure: list[Misalignment] = []
    doubtful: list[Misalignment] = []
    for item in differences:
        if item.step in broken and item.kind == "value":
            sure.append(_undone(item, broken[item.step]))
        # The choice is about elements only.
        elif item.kind in {"shape", "dtype", "metadata", "error"} and item.step in chosen:
            sure.append(item)
        elif item.step in chosen and item.kind in {"value", "mutation"}:
            continue
        # Which gradients follow from the choice is not known.
        elif chosen and (item.step in tainted or item.kind == "gradient"):
            doubtful.append(item)
        else:
            sure.append(item)
    return Settled(sure, doubtful)


def _undone(item: Misalignment, problem: str) -> Misalignment:
    """Return the misalignment with the broken property instead of numbers, which mean nothing for an open choice."""
    return Misalignment(
        kind="value", step=item.step, at=item.at, candidate=item.candidate, reference=item.reference,
        detail=f"this output is not unique, and what is defined of it does not hold: {problem}",
    )  # fmt: skip


def _open(program: Program, index: int, step: Step, candidate: Trace, reference: Trace) -> _Open | None:
    if not step.is_call or is_unpacking(step):
        return None
    row = row_of(step_operator(step, program.steps))
    if row is None and step.op == CALL_MODULE and _is_other_generator(candidate, reference, index):
        row = DRAWN_INSIDE if draws_inside(_module(step, candidate), training=_was_training(program, index)) else None
    if row is None:
        return None
    # Without outputs, because whether there is a choice depends on the arguments alone.
    call = _call(program, index, (candidate, candidate), {}, {})
    if not is_free(row, call, is_compiled=candidate.shown is not None):
        return None
    outputs = {
        position: i
        for i, other in enumerate(program.steps)
        if is_unpacking(other) and other.receiver == index and isinstance(position := other.args[1], int)
    }
    is_tensor = not outputs
    return _Open(index, row, {0: index} if is_tensor else outputs)


def _module(step: Step, trace: Trace) -> Any:
    """Return a side's module that a step calls."""
    return trace.values[step.receiver] if step.receiver is not None else None


def _was_training(program: Program, index: int) -> bool | None:
    """Return the training mode of a module when a step called it; ``None`` if no later step changes modes."""
    if all(step.sets_training is None for step in program.steps[index + 1 :]):
        return None
    # torch makes modules in training mode.
    module, mode = program.steps[index].args[0], True
    for step in program.steps[:index]:
        if step.sets_training is not None and step.args[0] == module:
            mode = step.sets_training
    return mode


def _is_other_generator(candidate: Trace, reference: Trace, index: int) -> bool:
    """Whether a seed gives the candidate other numbers, because it compiles or runs on another device."""
    if candidate.shown is not None:
        return True
    sides = [tensors_in(trace.values[index])[:1] for trace in (candidate, reference) if index < len(trace.values)]
    return len({tensor.device.type for first in sides for tensor in first}) > 1


def _free(call: _Open) -> tuple[int, ...]:
    """Return the positions that are not unique among the outputs of this call."""
    if len(call.outputs) == 1 and call.at in call.outputs.values():
        return () if call.row.outputs and 0 not in call.row.outputs else (0,)
    return call.row.outputs or tuple(call.outputs)


def _question(call: _Open, program: Program, candidate: Trace, reference: Trace) -> PropertyQuestion:
    ours, theirs = (_outputs(call, trace) for trace in (candidate, reference))
    return PropertyQuestion(
        call.row,
        _call(program, call.at, (candidate, reference), ours, theirs),
        _call(program, call.at, (reference, reference), theirs, theirs),
    )


def _outputs(call: _Open, trace: Trace) -> dict[int, torch.Tensor]:
    """Return a side's outputs of a call by position, including elements of a tuple that no step unpacks."""
    found: dict[int, torch.Tensor] = {}
    whole = trace.values[call.at] if call.at < len(trace.values) else None
    if isinstance(whole, tuple | list):
        found = {i: _on_the_host(value) for i, value in enumerate(whole) if isinstance(value, torch.Tensor)}
    for position, index in call.outputs.items():
        value = _seen(trace, index)
        if isinstance(value, torch.Tensor):
            found[position] = value
    return found


def _seen(trace: Trace, index: int) -> Any:
    """Return a step's value as it was at its step, else as it is now; tensors are moved to the host."""
    observation = trace.observations[index] if index < len(trace.observations) else None
    if observation is not None and observation.data is not None:
        return _on_the_host(observation.data)
    return _on_the_host(trace.values[index]) if index < len(trace.values) else None


def _seen_by(traces: tuple[Trace, Trace], index: int) -> Any:
    found = _seen(traces[0], index)
    return _seen(traces[1], index) if found is None else found


def _on_the_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _call(
    program: Program,
    index: int,
    traces: tuple[Trace, Trace],
    outputs: dict[int, torch.Tensor],
    reference: dict[int, torch.Tensor],
) -> SideCall:
    """Return a call with one side's values; values that it does not show are the other side's."""
    step, trace = program.steps[index], traces[0]
    backend = TorchSteps()
    used = used_by([step])
    values = [_seen_by(traces, i) if i in used else None for i in range(index)]
    args = [materialize(arg, values, backend.constant) for arg in step.args]
    kwargs = {key: materialize(value, values, backend.constant) for key, value in step.kwargs}
    if step.op == CALL_MODULE:
        module, args = _module(step, trace), args[1:]
        kwargs |= {name: getattr(module, name) for name in ("p", "training", "inplace") if hasattr(module, name)}
        kwargs |= {"dropout_p": module.dropout} if isinstance(getattr(module, "dropout", None), float) else {}
        mode = _was_training(program, index)
        kwargs |= {"training": mode} if mode is not None and "training" in kwargs else {}
    count = max([*outputs, *reference], default=-1) + 1
    name = step_operator(step, program.steps).rpartition(".")[2]
    return SideCall(
        name,
        tuple(args),
        kwargs,
        tuple(outputs.get(i) for i in range(count)),
        tuple(reference.get(i) for i in range(count)),
    )


def _descendants(program: Program, roots: set[int]) -> set[int]:
    """Return the steps computed from any of ``roots``, without the roots."""
    return reached(program.steps, roots) - roots
