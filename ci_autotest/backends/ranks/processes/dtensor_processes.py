"""A group of DTensors whose ranks are processes: what they answer becomes one trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.backends.input_copies import contiguous_spec
from ci_autotest.backends.ranks.group import GroupTrace
from ci_autotest.backends.ranks.processes.group_failures import (
    program_end,
    take_backward_failures,
    take_failures,
    with_stuck,
)
from ci_autotest.backends.ranks.processes.process_group import ProcessGroup, Stuck
from ci_autotest.backends.ranks.processes.rank_answer import (
    Module,
    Plain,
    RankAnswer,
    RankQuestion,
    Whole,
    distribution_in,
)
from ci_autotest.backends.ranks.ranks import numbered, other_bits
from ci_autotest.backends.ranks.wholes import SAME_BITS, as_plain, module_of
from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import RankFault
from ci_autotest.program.ir import PLACEHOLDER, Program, cotangent_key
from ci_autotest.program.json_values import result_of
from ci_autotest.program.recording import Recording
from ci_autotest.program.serialize import encode_program, encode_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.backends.trace import GradientKey
    from ci_autotest.program.distribution import Distribution

_ANSWERS: Final = msgspec.json.Decoder(RankAnswer)
_FORWARD_ONLY: Final[dict[int, Any]] = {}


class Processes:
    """A group of ranks in processes of their own; they stay warm from case to case.

    Args:
        group: The processes of that many ranks, which all meshes of one size share.
        mesh: Sizes of the mesh.
    """

    def __init__(self, group: ProcessGroup, mesh: tuple[int, ...]) -> None:
        self._group, self._mesh = group, mesh

    def forward(
        self, program: Program, sources: Mapping[str, Any], on_step: Callable[[int], None] | None, *, snapshots: bool
    ) -> GroupTrace:
        """Run a program forward. Its backward pass runs it again, because no rank waits with a graph."""
        if on_step is not None and program.calls:
            on_step(program.calls[0][0])
        trace = self._run(program, sources, _FORWARD_ONLY, snapshots=snapshots)
        trace.run = (sources, snapshots)
        return trace

    def backward(self, program: Program, trace: GroupTrace, cotangents: Mapping[int, Any]) -> None:
        """Run the program and its backward pass, and put the gradients into the trace."""
        sources, snapshots = trace.run
        found = self._run(program, sources, cotangents, snapshots=snapshots)
        trace.gradients = found.gradients
        trace.backward_failure, trace.backward_lacking = found.backward_failure, found.backward_lacking
        trace.rank_faults = found.rank_faults or trace.rank_faults

    def whole_run(self, program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any]) -> GroupTrace:
        """Run a program forward and backward at once."""
        return self._run(program, sources, cotangents, snapshots=False)

    def close(self) -> None:
        """End the ranks."""
        self._group.end()

    def _run(
        self, program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any], *, snapshots: bool
    ) -> GroupTrace:
        recording = recording_of(program, sources, cotangents)
        question = RankQuestion(mesh=self._mesh, snapshots=snapshots, has_backward=bool(cotangents))
        buffers = [encode_program(recording), encode_tensors(recording)]
        found = self._group.exchange(msgspec.json.encode(question), buffers, _ANSWERS.decode)
        merged = _MergedPrograms(program, snapshots=snapshots)
        if isinstance(found, Stuck):
            merged.trace.distributions |= _lying(program, found)
            return with_stuck(merged.trace, program, found)
        return merged.of_answers([found[rank].head for rank in sorted(found)], found[0].buffers)


def _lying(program: Program, stuck: Stuck) -> dict[int, Distribution]:
    """Return how values lay on the ranks of a group that was ended: the inputs, and what a rank has told."""
    found = {
        index: spec.distribution
        for index, step in enumerate(program.steps)
        if (spec := step.spec) is not None and spec.distribution is not None
    }
    for answer in stuck.answers.values():
        for index, value in [*answer.head.observations.items(), *answer.head.values.items()]:
            on = distribution_in(value) if isinstance(value, Whole) else None
            found |= {index: on} if on is not None else {}
    return found


def recording_of(program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any]) -> Recording:
    """Return a program with the bytes of its data; nothing is pickled."""
    tensors = {step.target: bytes(byte_view(sources[step.target])) for step in program.steps if step.op == PLACEHOLDER}
    specs: list[Any] = [None] * (max(cotangents, default=-1) + 1)
    for position, source in cotangents.items():
        specs[position] = contiguous_spec(source)
        tensors[cotangent_key(position)] = bytes(byte_view(source))
    return Recording(replace(program, cotangents=tuple(specs)), tensors)


class _MergedPrograms:
    """One trace of the answers of all ranks."""

    def __init__(self, program: Program, *, snapshots: bool) -> None:
        self._program = program
        self.trace = self._trace = GroupTrace(len(program.steps), snapshots=snapshots)

    def of_answers(self, answers: Sequence[RankAnswer], buffers: Sequence[memoryview]) -> GroupTrace:
        trace = self._trace
        for index in answers[0].observations:
            values = [answer.observations.get(index) for answer in answers]
            trace.observations[index] = observed(self._value(values, buffers, index))
        failures = {rank: answer.failure for rank, answer in enumerate(answers) if answer.failure is not None}
        if failures:
            take_failures(trace, failures, len(answers))
            return trace
        for index in answers[0].values:
            trace.values[index] = self._value([answer.values.get(index) for answer in answers], buffers, index)
        raised = {
            rank: answer.backward_failure for rank, answer in enumerate(answers) if answer.backward_failure is not None
        }
        if raised:
            take_backward_failures(trace, program_end(self._program), raised, len(answers))
            return trace
        gradients = [dict(answer.gradients) for answer in answers]
        trace.gradients = {
            key: self._whole([each.get(key) for each in gradients], buffers, key)
            for key in dict.fromkeys(key for each in gradients for key in each)
        }
        return trace

    def _value(self, values: Sequence[Whole | Plain | Module | None], buffers: Sequence[memoryview], index: int) -> Any:
        """Return the first rank's value; the others must have the same."""
        match first := values[0]:
            case Whole():
                on = distribution_in(first)
                if on is not None:
                    self._trace.distributions[index] = on
                return self._whole(values, buffers, index, is_value=True)
            case Module():
                states = [one.state if isinstance(one, Module) else {} for one in values]
                found = {
                    name: self._whole([state.get(name) for state in states], buffers, index, is_value=True)
                    for name in dict.fromkeys(name for state in states for name in state)
                }
                return module_of({name: tensor for name, tensor in found.items() if tensor is not None})
            case Plain():
                if any(other != first for other in values):
                    seen = f"ranks read {', '.join(map(_described, values))}"
                    self._note(RankFault(index, None, is_call=False, seen=seen, expected="one value on all ranks"))
                return result_of(first.value)
            case _:
                return None

    def _whole(
        self,
        wholes: Sequence[Whole | Plain | Module | None],
        buffers: Sequence[memoryview],
        at: GradientKey,
        *,
        is_value: bool = False,
    ) -> torch.Tensor | None:
        """Return the first rank's tensor; the others must hold the same."""
        first = wholes[0]
        apart = [rank for rank, other in enumerate(wholes) if _without_buffer(other) != _without_buffer(first)]
        if apart:
            step = at if isinstance(at, int) else at[0]
            self._note(RankFault(step, None if is_value else at, False, *_disagreement(wholes, apart)))  # noqa: FBT003
        if not isinstance(first, Whole):
            return None
        dtype = getattr(torch, first.dtype)
        data = buffers[first.buffer]
        whole = (
            torch.frombuffer(bytearray(data), dtype=dtype).reshape(first.shape)
            if data
            else torch.empty(first.shape, dtype=dtype)
        )
        return as_plain(whole, requires_grad=first.requires_grad, is_leaf=first.is_leaf)

    def _note(self, fault: RankFault) -> None:
        known = {(one.step, one.key) for one in self._trace.rank_faults}
        if (fault.step, fault.key) not in known:
            self._trace.rank_faults = [*self._trace.rank_faults, fault]


def _without_buffer(value: Whole | Plain | Module | None) -> Whole | Plain | Module | None:
    """Return what a rank has without the number of its buffer, which only the first rank fills."""
    return msgspec.structs.replace(value, buffer=-1) if isinstance(value, Whole) else value


def _disagreement(values: Sequence[Whole | Plain | Module | None], apart: Sequence[int]) -> tuple[str, str]:
    """Return in words what the ranks hold, and what they should hold."""
    texts: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        texts.setdefault(_described(value), []).append(rank)
    if len(texts) == 1:
        return other_bits(apart, [rank for rank in range(len(values)) if rank not in apart]), SAME_BITS
    seen = [f"{numbered(ranks)} {'holds' if len(ranks) == 1 else 'hold'} {text}" for text, ranks in texts.items()]
    return ", ".join(seen), "the same on all ranks"


def _described(value: Whole | Plain | Module | None) -> str:
    match value:
        case Whole():
            flags = [" that requires grad"] if value.requires_grad else []
            flags += [" (a leaf)"] if value.is_leaf else []
            lies = f" as {on}" if (on := distribution_in(value)) is not None else ""
            return f"{value.dtype}{list(value.shape)}{''.join(flags)}{lies}"
        case Plain():
            return str(value.value)[:40]
        case Module():
            return "a module"
        case _:
            return "nothing"
