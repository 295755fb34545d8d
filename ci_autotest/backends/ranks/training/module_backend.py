"""The backends ``ddp`` and ``fsdp``: ranks train one module, each on its slice of the batch.

The body of a test is one module (``BodyModule``), wrapped by PyTorch or by the user's function. Each rank starts its
backward pass from its slice of the gradients times the number of ranks, because the wrapper takes the mean over ranks:
what is held against one process is then the sum over the whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.backends.protocol import Backend, out_of_scope
from ci_autotest.backends.ranks.group import GroupTrace, WholeRuns
from ci_autotest.backends.ranks.processes.dtensor_processes import recording_of
from ci_autotest.backends.ranks.processes.group_failures import (
    program_end,
    take_backward_failures,
    take_failures,
    with_stuck,
)
from ci_autotest.backends.ranks.processes.process_group import ProcessGroup, Stuck, start_or_close
from ci_autotest.backends.ranks.processes.rank_device import COMMUNICATION
from ci_autotest.backends.ranks.processes.rank_server import RankServer
from ci_autotest.backends.ranks.ranks import numbered, other_bits
from ci_autotest.backends.ranks.training.batch_plan import NotSplitError
from ci_autotest.backends.ranks.training.batch_split import distributed, ranks_of, split_dimension, why_not_split
from ci_autotest.backends.ranks.training.joins import EACH, SAME, is_close, joined, total
from ci_autotest.backends.ranks.training.module_rank import (
    FSDP,
    BodyAnswer,
    BodyQuestion,
    ModuleRank,
    PlainPart,
    TensorPart,
    wrapper_of,
)
from ci_autotest.backends.ranks.training.slice_reference import split_plan
from ci_autotest.backends.ranks.wholes import SAME_BITS, as_plain, module_of
from ci_autotest.backends.sameness import is_same
from ci_autotest.backends.trace import RankFault, Trace
from ci_autotest.backends.worker_side import ALONE, WorkerSide
from ci_autotest.errors import UnavailableError, Unsupported, UnsupportedReason, import_failure
from ci_autotest.program.ir import BUFFER, OUTPUT, output_refs
from ci_autotest.program.json_values import result_of
from ci_autotest.program.note import PlanNote
from ci_autotest.program.serialize import encode_program, encode_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.backends.protocol import Enter, Submission
    from ci_autotest.backends.ranks.processes.process_group import Launcher
    from ci_autotest.backends.ranks.training.batch_plan import RankPlan
    from ci_autotest.backends.ranks.training.batch_split import Slices
    from ci_autotest.backends.ranks.training.joins import Join
    from ci_autotest.backends.trace import Attempt, GradientKey
    from ci_autotest.program.ir import Program


_NOTHING: Final[dict[int, Any]] = {}
_CUT: Final = Unsupported(UnsupportedReason.BATCH, "a part of a body has no output")


class ModuleBackend(Backend):
    """Run the bodies of tests as modules that ranks share.

    Args:
        candidate: Name of the candidate.
        backend: ``ddp`` or ``fsdp``.
        ranks: Number of ranks.
        wrap: The user's function, ``module:function``; empty for PyTorch's own wrapper.
        device: Device of the ranks.
        worker: The worker whose candidate they are.
        launcher: Starts their processes; ``None`` to fork them here.

    Raises:
        UnavailableError: The ranks cannot be started here, or there is no such function.
    """

    is_in_process = False
    shows_steps = False

    def __init__(  # noqa: PLR0913 - what a row says, and its worker
        self,
        candidate: str,
        backend: str,
        ranks: int,
        wrap: str = "",
        device: str = "cpu",
        worker: WorkerSide = ALONE,
        *,
        launcher: Launcher | None = None,
    ) -> None:
        if wrap:
            _refuse_missing(candidate, wrap)
        self.on_step: Callable[[int], None] | None = None
        self.mode = f"{ranks} ranks, {COMMUNICATION[device]}"
        self._how, self._count = (backend, wrap), ranks
        # Before anything has run here: what was forked later could not run a backward pass.
        self._launcher: Launcher = launcher or RankServer(candidate, ModuleRank, backend, worker)
        self._groups = {ranks: ProcessGroup(self._launcher, ranks)}
        start_or_close(self._groups[ranks], self._launcher)

    def adapted(self, attempt: Attempt) -> Attempt:
        """Return an attempt whose inputs are split over the ranks."""
        own = super().adapted(attempt)
        return own._replace(program=distributed(own, self._count))

    def submit(self, attempts: Sequence[Attempt], enter: Enter) -> Submission:
        """Submit a batch of whole runs."""
        return WholeRuns(self._whole_run, list(map(self.adapted, attempts)), enter)

    def _whole_run(self, attempt: Attempt) -> Trace:
        outside = out_of_scope(self, attempt)
        if outside is not None:
            trace = Trace()
            trace.untested = outside
            return trace
        trace = self._ran(attempt.program, attempt.sources, attempt.cotangents, snapshots=False)
        self.case_scope.mark(trace)
        return trace

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - the values of a group are compared as they are at the end
    ) -> Trace:
        """Run the program forward. Its backward pass runs it again, because no rank waits with a graph."""
        trace = self._ran(program, sources, _NOTHING, snapshots=snapshots)
        trace.run = (sources, snapshots)
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the program and its backward pass, and put the gradients into the trace."""
        if not isinstance(trace, GroupTrace) or trace.failure is not None or trace.untested is not None:
            return
        sources, snapshots = trace.run
        found = self._ran(program, sources, cotangents, snapshots=snapshots)
        trace.gradients, trace.untested = found.gradients, found.untested
        trace.backward_failure, trace.backward_lacking = found.backward_failure, found.backward_lacking
        trace.rank_faults = found.rank_faults or trace.rank_faults
        if found.backward_failure is None:  # else the forward pass is all that was compared, with what it had
            trace.expectation = found.expectation

    def plan_note(self, program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any]) -> PlanNote | None:
        """Return how the ranks share the batch of a program, which its repro joins alike."""
        ranks = ranks_of(program, self._count)
        if why_not_split(program, ranks) is not None:
            return None
        try:
            slices, plan = self._planned(program, sources, cotangents, ranks)
        except NotSplitError:
            return None
        joins = [plan.joins.get(ref.index) for ref in output_refs(program)]
        return PlanNote(
            rows=slices.rows,
            joins=[(at, join.kind, join.dimension) for at, join in enumerate(joins) if join is not None],
            sizes=[
                (at, [own[at].shape[join.dimension] for own in plan.cotangents])
                for at, join in enumerate(joins)
                if join is not None and join.kind == "rows" and at in cotangents
            ],
            weights=list(plan.weights.items()),
            of_slices=sorted(plan.of_slices),
            independent=plan.mixes is None,
            unused=plan.has_unused,
            sized=list(slices.sized),
        )

    def _planned(
        self, program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any], ranks: int
    ) -> tuple[Slices, RankPlan]:
        # FSDP leaves buffers alone.
        return split_plan(program, sources, cotangents, ranks, shares_buffers=self._how[0] != FSDP)

    def close(self) -> None:
        """End the ranks."""
        for group in self._groups.values():
            group.end()
        self._launcher.close()

    def _ran(
        self, program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any], *, snapshots: bool
    ) -> GroupTrace:
        ranks = ranks_of(program, self._count)
        # A search for the step that writes to a value cuts a program: that does not make a body to train on.
        is_cut = program.body[-1:] == () or program.body[-1].op != OUTPUT
        refused = _CUT if is_cut else why_not_split(program, ranks)
        if refused is not None:
            return _untested(program, refused, snapshots=snapshots)
        try:
            slices, plan = self._planned(program, sources, cotangents, ranks)
        except NotSplitError as error:
            return _untested(program, error.why, snapshots=snapshots)
        if self.on_step is not None and program.calls:
            self.on_step(program.calls[0][0])
        if ranks not in self._groups:
            self._groups[ranks] = ProcessGroup(self._launcher, ranks)
        trace = _run_on_ranks(self._groups[ranks], program, slices, plan, self._how, snapshots=snapshots)
        is_faulty = trace.rank_faults or trace.failure is not None or trace.backward_failure is not None
        # What the ranks do not agree on is a fault, whatever their values are held against.
        trace.untested = None if is_faulty else plan.mixes or trace.untested
        return trace


def _untested(program: Program, why: Unsupported, *, snapshots: bool) -> GroupTrace:
    trace = GroupTrace(len(program.steps), snapshots=snapshots)
    trace.untested, trace.shown = why, frozenset()
    return trace


def _refuse_missing(candidate: str, wrap: str) -> None:
    module, _, name = wrap.partition(":")
    try:
        found = wrapper_of(wrap)
    except AttributeError as error:
        message = f"candidate '{candidate}': wrap: module {module!r} has no function {name!r}. Correct the name."
        raise UnavailableError(message) from error
    except Exception as error:
        message = f"candidate '{candidate}': wrap: {module!r} cannot be imported: {import_failure(error, module)}"
        raise UnavailableError(message) from error
    if not callable(found):
        message = f"candidate '{candidate}': wrap: {wrap} is no function. Name one."
        raise UnavailableError(message)


# A module that ranks share, seen from the worker: what the ranks answer becomes one trace of the whole batch.
#
# Outputs are joined. Gradients of parameters, parameters and buffers must be the same on all ranks, bit for bit.


_OF_BOTH: Final = (
    "rows are not independent, and the ranks have some outputs of the whole batch and some that are not. Only whether "
    "the ranks agree is compared"
)
_ANSWERS: Final = msgspec.json.Decoder(BodyAnswer)


def _run_on_ranks(
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
