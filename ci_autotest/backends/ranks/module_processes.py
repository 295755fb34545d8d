"""A module that ranks share, seen from the worker: what the ranks answer becomes one trace of the whole batch.

Outputs are joined. Gradients of parameters, parameters and buffers must be the same on all ranks, bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.backends.ranks.batch_split import split_dimension
from ci_autotest.backends.ranks.group import GroupTrace
from ci_autotest.backends.ranks.group_failures import program_end, take_backward_failures, take_failures, with_stuck
from ci_autotest.backends.ranks.joins import EACH, SAME, is_close, joined, total
from ci_autotest.backends.ranks.module_rank import FSDP, BodyAnswer, BodyQuestion, PlainPart, TensorPart
from ci_autotest.backends.ranks.process_group import ProcessGroup, Stuck
from ci_autotest.backends.ranks.processes import recording_of
from ci_autotest.backends.ranks.ranks import numbered, other_bits
from ci_autotest.backends.ranks.wholes import SAME_BITS, as_plain, module_of
from ci_autotest.backends.sameness import is_same
from ci_autotest.backends.trace import RankFault
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.ir import BUFFER
from ci_autotest.program.json_values import result_of
from ci_autotest.program.serialize import encode_program, encode_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.ranks.batch_plan import RankPlan
    from ci_autotest.backends.ranks.batch_split import Slices
    from ci_autotest.backends.ranks.joins import Join
    from ci_autotest.backends.trace import GradientKey
    from ci_autotest.program.ir import Program

_OF_BOTH: Final = (
    "rows are not independent, and the ranks have some outputs of the whole batch and some that are not. Only whether "
    "the ranks agree is compared"
)
_ANSWERS: Final = msgspec.json.Decoder(BodyAnswer)


def run_on_ranks(
    group: ProcessGroup, program: Program, slices: Slices, plan: RankPlan, how: tuple[str, str], *, snapshots: bool
) -> GroupTrace:
    """Run a program on the ranks of a group.

    Args:
        group: The ranks.
        program: The program of the whole batch.
        slices: Its parts.
        plan: How they are joined.
        how: The backend and the user's wrapper.
        snapshots: Whether the trace is one with snapshots.
    """
    has_backward = any(plan.cotangents)
    shown = sorted(set(plan.joins) - set(plan.states)) if plan.mixes is None else []
    question = BodyQuestion(
        backend=how[0], wrap=how[1], has_unused=plan.has_unused, weights=plan.weights, shown=shown, states=plan.states,
        keys=plan.keys, has_backward=has_backward,
    )  # fmt: skip
    buffers: list[bytes | memoryview] = []
    for own, sources, given in zip(slices.programs, slices.sources, plan.cotangents, strict=True):
        recording = recording_of(own, sources, given)
        buffers += [encode_program(recording), encode_tensors(recording)]
    found = group.exchange(msgspec.json.encode(question), buffers, _ANSWERS.decode)
    # FSDP leaves buffers alone.
    merged = _MergedBodies(program, slices, plan, snapshots=snapshots, shares_buffers=how[0] != FSDP)
    if isinstance(found, Stuck):
        merged.trace.shown = frozenset()
        return with_stuck(merged.trace, program, found)
    return merged.of_answers(
        [found[rank].head for rank in sorted(found)], [found[rank].buffers for rank in sorted(found)]
    )


class _MergedBodies:
    """One trace of the answers of all ranks."""

    def __init__(
        self, program: Program, slices: Slices, plan: RankPlan, *, snapshots: bool, shares_buffers: bool
    ) -> None:
        self._shares_buffers = shares_buffers
        self._program, self._slices, self._plan = program, slices, plan
        self.trace = GroupTrace(len(program.steps), snapshots=snapshots)
        self.trace.distributions = dict(plan.distributions)

    def of_answers(self, answers: Sequence[BodyAnswer], buffers: Sequence[Sequence[memoryview]]) -> GroupTrace:
        trace = self.trace
        trace.shown = frozenset()
        failures = {rank: answer.failure for rank, answer in enumerate(answers) if answer.failure is not None}
        if failures:
            take_failures(trace, failures, len(answers))
            return trace
        raised = {
            rank: answer.backward_failure for rank, answer in enumerate(answers) if answer.backward_failure is not None
        }
        if raised:
            take_backward_failures(trace, program_end(self._program), raised, len(answers))
            return trace
        values = {
            index: [_value(answer.values[index], own) for answer, own in zip(answers, buffers, strict=True)]
            for index in answers[0].values
        }
        for index, parts in values.items():
            trace.values[index] = self._joined(parts, index)
        if self._plan.mixes is None:
            self._expect()
        right = {index for index, parts in values.items() if self._is_right_buffer(parts, index)}
        for index in answers[0].states:
            trace.values[index] = self._module([
                {name: _tensor(part, own) for name, part in answer.states[index].items()}
                for answer, own in zip(answers, buffers, strict=True)
            ], index)  # fmt: skip
        gradients = [
            {key: None if part is None else _tensor(part, own) for key, part in answer.gradients}
            for answer, own in zip(answers, buffers, strict=True)
        ]
        found = {key: self._gradient([own[key] for own in gradients], key) for key in gradients[0]}
        if self._plan.mixes is None:
            trace.gradients = found
            trace.shown = frozenset({*answers[0].values, *answers[0].states} - right)
        return trace

    def _expect(self) -> None:
        """Set what the ranks are held against: each one its slice, or the whole batch if their outputs are those."""
        trace, expectation = self.trace, self._plan.expectation
        apart = expectation.of_whole if expectation is not None else {}
        values = [(trace.values[index], whole) for index, whole in apart.items()]
        is_whole = [isinstance(value, torch.Tensor) and is_close(value, whole) for value, whole in values]
        if any(is_whole) and not all(is_whole):
            trace.untested = Unsupported(UnsupportedReason.BATCH, _OF_BOTH)
        elif not any(is_whole):
            trace.expectation = expectation

    def _joined(self, parts: Sequence[Any], index: int) -> Any:
        join = self._plan.joins[index]
        if not all(isinstance(part, torch.Tensor) for part in parts):
            if any(part != parts[0] for part in parts):
                seen = f"ranks have {', '.join(str(part)[:40] for part in parts)}"
                self._note(RankFault(index, None, is_call=False, seen=seen, expected="one value on all ranks"))
            return parts[0]
        if join == SAME and (fault := _disagreement(parts)):
            self._note(RankFault(index, None, is_call=False, seen=fault, expected=SAME_BITS))
        return as_plain(
            self._whole(parts, join), requires_grad=parts[0].requires_grad, is_leaf=parts[0].is_leaf
        )  # fmt: skip

    def _whole(self, parts: Sequence[torch.Tensor], join: Join) -> torch.Tensor:
        alike = {(part.dtype, part.dim()) for part in parts}
        # Parts that cannot be joined are shown as the first rank has them, so that their shape is seen to differ.
        can_join = len(alike) == 1 and (join.kind == "rows" or len({part.shape for part in parts}) == 1)
        try:
            return joined(parts, join, self._slices.shares) if can_join else parts[0]
        except (RuntimeError, IndexError):
            return parts[0]

    def _module(self, states: Sequence[dict[str, torch.Tensor]], index: int) -> Any:
        """Return a module by its state; of buffers that ranks do not share, it has one row for each rank."""
        kept = dict(states[0])
        for name in dict.fromkeys(name for state in states for name in state):
            parts = [state.get(name) for state in states]
            is_buffer = (index, name) in self._plan.buffers
            is_own = is_buffer and not self._shares_buffers
            found = self._whole([part for part in parts if part is not None], EACH) if is_own else parts[0]
            is_of_slices = is_buffer and found is not None and self._is_of_slices(found, index, name)
            if is_of_slices:
                del kept[name]  # It is right, and not what the whole batch has.
            elif is_own and found is not None and self.trace.expectation is not None:
                kept[name] = found
            may_differ = is_of_slices or self.trace.expectation is not None or self._holds_nothing(index, name)
            if not (is_own and may_differ) and (fault := _disagreement(parts)):
                self._note(RankFault(index, None, is_call=False, seen=fault, expected=SAME_BITS, state=name))
        return module_of(kept)

    def _is_right_buffer(self, parts: Sequence[Any], index: int) -> bool:
        """Whether a buffer that the body holds itself is that of slices beside outputs of the whole batch.

        One that is not must be the same on all ranks there.
        """
        trace, spec = self.trace, self._program.steps[index].spec
        is_whole = self._plan.expectation is not None and trace.expectation is None and trace.untested is None
        if not is_whole or spec is None or spec.state != BUFFER:
            return False
        if self._is_of_slices(trace.values[index], index):
            return True
        if self._plan.joins[index] == EACH:
            trace.values[index] = as_plain(parts[0], requires_grad=parts[0].requires_grad, is_leaf=parts[0].is_leaf)
            if fault := _disagreement(parts):
                self._note(RankFault(index, None, is_call=False, seen=fault, expected=SAME_BITS))
        return False

    def _is_of_slices(self, found: torch.Tensor, index: int, name: str = "") -> bool:
        """Whether a buffer is that of slices though the outputs are those of the whole batch.

        A wrapper that synchronises a BatchNorm leaves an InstanceNorm alone, whose statistics are those of a rank.
        """
        expectation = self._plan.expectation
        if expectation is None or self.trace.expectation is not None or (index, name) not in self._plan.of_slices:
            return False
        expected = expectation.trace.values[index]
        return is_close(found, expected.state_dict()[name] if name else expected)

    def _holds_nothing(self, index: int, name: str) -> bool:
        """Whether a buffer depends on the rows of a rank, and is held against nothing."""
        return (index, name) in self._plan.of_slices and (self._plan.mixes or self.trace.untested) is not None

    def _gradient(self, parts: Sequence[torch.Tensor | None], key: GradientKey) -> torch.Tensor | None:
        """Return the gradient of the whole batch; ranks must agree on that of a parameter."""
        index = key if isinstance(key, int) else key[0]
        spec = self._program.steps[index].spec
        if isinstance(key, tuple) or (spec is not None and spec.state):
            fault = _disagreement(parts)
            if fault:
                self._note(RankFault(index, key, is_call=False, seen=fault, expected=SAME_BITS))
            return parts[0]
        present = [part for part in parts if part is not None]
        if len(present) < len(parts):
            return None
        dimension = split_dimension(spec) if spec is not None else None
        return total(present) if dimension is None else torch.cat(present, dimension)

    def _note(self, fault: RankFault) -> None:
        known = {(one.step, one.key, one.state) for one in self.trace.rank_faults}
        if (fault.step, fault.key, fault.state) not in known:
            self.trace.rank_faults = [*self.trace.rank_faults, fault]


def _value(part: TensorPart | PlainPart, buffers: Sequence[memoryview]) -> Any:
    return _tensor(part, buffers) if isinstance(part, TensorPart) else result_of(part.value)


def _tensor(part: TensorPart, buffers: Sequence[memoryview]) -> torch.Tensor:
    dtype, data = getattr(torch, part.dtype), buffers[part.buffer]
    whole = (
        torch.frombuffer(bytearray(data), dtype=dtype).reshape(part.shape)
        if data
        else torch.empty(part.shape, dtype=dtype)
    )
    return as_plain(whole, requires_grad=part.requires_grad, is_leaf=part.is_leaf)


def _disagreement(parts: Sequence[torch.Tensor | None]) -> str:
    """Return in words which ranks hold other elements than the first one; empty if all hold the same."""
    first = parts[0]
    apart = [
        rank for rank, part in enumerate(parts)
        if (part is None) != (first is None) or (part is not None and first is not None and not is_same(part, first))
    ]  # fmt: skip
    if not apart:
        return ""
    rest = [rank for rank in range(len(parts)) if rank not in apart]
    lacking = [rank for rank, part in enumerate(parts) if part is None]
    return f"{numbered(lacking)} {'has' if len(lacking) == 1 else 'have'} none" if lacking else other_bits(apart, rest)
