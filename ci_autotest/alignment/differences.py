"""Run one program on the candidate and the reference, and list every difference.

The fast path compares once, at the end. Cases that it is not sure of run again in an ``Examination``, which copies
every value at its step and reports what differs, where and in which order.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.alignment.aliasing import as_moved
from ci_autotest.alignment.blame.reference_error import ExactValues
from ci_autotest.alignment.compare import compare, placed, value_place
from ci_autotest.alignment.fast_path import has_state
from ci_autotest.alignment.gradients import gradient_differences
from ci_autotest.alignment.properties.call import nothing
from ci_autotest.alignment.properties.table import row_of
from ci_autotest.alignment.single_step import Live
from ci_autotest.alignment.tolerance_rules import expected_tolerance
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.operators.user_operators import lacks_gradient
from ci_autotest.backends.result_bands import OutOfBoundsError
from ci_autotest.backends.sameness import is_same, same_bits
from ci_autotest.backends.snapshots import metadata, observed
from ci_autotest.backends.substitute.operator_checks import OperatorCheckError
from ci_autotest.backends.substitute.replaced_modules import has_own_names
from ci_autotest.backends.trace import Observation
from ci_autotest.program.codegen import names
from ci_autotest.program.edit import maker_of
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    EXPECT,
    HOOK,
    PLACEHOLDER,
    operator_check_of,
    result_bands_of,
    step_refs,
)
from ci_autotest.program.refusal import Refusal, refused_as
from ci_autotest.program.targets import last_name
from ci_autotest.values.dtypes import COMPLEX, FLOATING
from ci_autotest.values.verdict import BackwardPass, Call, Cotangent, Gradient, Misalignment, State, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.alignment.blame.reference_error import InFloat64, Part
    from ci_autotest.alignment.gradients import RestExamination
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import RankFault, Trace
    from ci_autotest.program.ir import Program, Step
    from ci_autotest.values.verdict import Aspect, Kind, Place


#: Kinds of differences of a value other than its elements.
_ASPECTS: Final[Mapping[str, Aspect]] = MappingProxyType({
    "shape": "shape", "dtype": "dtype", "metadata": "metadata",
})  # fmt: skip
_Tensor: Final = torch.Tensor


class Examination:
    """Run a program on both sides with a copy of every value, and list all differences in order.

    Args:
        program: The program to run.
        sources: Data by key.
        cotangents: Gradients of the outputs, by position of the output's tensors.
        rules: How values are compared.
        in_float64: Entered while float64 runs, which only ``strictness: measured`` needs; ``None`` if it must not run.
    """

    def __init__(
        self,
        program: Program,
        sources: Mapping[str, Any],
        cotangents: Mapping[int, Any],
        rules: Rules,
        in_float64: InFloat64 | None = nullcontext,
    ) -> None:
        self.program = program
        self._in_float64 = in_float64
        self._exact = ExactValues(Live(program, sources, cotangents), in_float64)
        self.steps = program.steps
        self.sources = sources
        self.cotangents = cotangents
        self.rules = rules
        self.operators = rules.operators(self.steps)
        self._values_of_reference: Sequence[Any] | None = None
        self._has_strides = True
        # An array has no flags, and a reference without a gradient asks for none.
        self._has_flags = not any(lacks_gradient(step.target) for step in self.steps if "." in step.target)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each step's value, as the printed program has it: several steps may be recorded by one name."""
        return names(self.program)

    def run(self, backend: Backend) -> Trace:
        """Return a side's trace with snapshots and gradients."""
        trace = backend.run(self.program, self.sources, snapshots=True)
        if trace.failure is None and self.cotangents:
            backend.backward(self.program, trace, self.cotangents)
        return trace

    def differences(self, candidate: Trace, reference: Trace) -> list[Misalignment]:
        """Return every misalignment: values in program order, then state, mutation and gradients from the output back.

        Args:
            candidate: Trace with snapshots.
            reference: Trace with snapshots of the same steps.
        """
        if reference.failure is not None:
            return []  # A reference that raises defines nothing to compare with.
        self._values_of_reference = reference.values
        self.operators = self.rules.operators(self.steps, reference.values)
        self._has_strides = not candidate.is_remote
        if candidate.expectation is not None:
            live = Live(self.program, self.sources, self.cotangents)
            self._exact = ExactValues(live, self._in_float64, candidate.expectation.reference)
        found = with_rank_faults(self._values(candidate, reference), candidate, self)
        if candidate.failure is not None:
            is_of_ranks = any(fault.step == candidate.failure.step for fault in candidate.rank_faults)
            return found if is_of_ranks else [*found, self._raised(candidate)]
        found += self._end_state(candidate, reference)
        # Values in hooks are gradients. They come last, because the search for their cause starts with other gradients.
        found += with_rank_faults(gradient_differences(self, candidate, reference), candidate, self, has_backward=True)
        return found + self._values(candidate, reference, in_hooks=True)

    def _values(self, candidate: Trace, reference: Trace, *, in_hooks: bool = False) -> list[Misalignment]:
        found = []
        shown = candidate.shown
        stop = candidate.failure.step if candidate.failure else len(self.steps)
        for index, step in enumerate(self.steps[:stop]):
            if (
                not step.is_call
                or step.in_setup
                or is_of_hook(step) is not in_hooks
                or (shown is not None and index not in shown)
            ):
                continue
            if step.modes and refused_as(step) is not None:
                found += self._refusal(step, index, candidate, reference)
                continue
            left, right = candidate.observations[index], reference.observations[index]
            if shown is not None:
                # A compiler shows a value at the end of the run, after later steps may have written to it.
                left, right = observed(candidate.values[index]), observed(reference.values[index])
            if left is not None and right is not None:
                arity = _arity(candidate.values[index], reference.values[index])
                sides = _as_elements((left, right), index, self.steps, reference)
                sides = as_moved(sides, index, self.steps, (candidate, reference))
                flags = self._has_flags and candidate.has_flags and not self._is_set_aside(index, "metadata")
                flags = flags and not _is_argument(step, index, candidate, sides)
                if step.target == EXPECT:
                    misalignment = self._unexpected(step, *sides)
                else:
                    misalignment = arity or self.compared(*sides, flags=flags, part=("value", index))
                if misalignment is not None:
                    at = value_place(self.names, self.steps, index, _ASPECTS.get(misalignment.kind, "value"))
                    found.append(msgspec.structs.replace(misalignment, step=index, at=at))
        return found

    def _unexpected(self, step: Step, left: Observation, right: Observation) -> Misalignment | None:
        """Return how a value departs from what the test expects. What is expected has no flags, strides or float64."""
        dtype = right.metadata.dtype if right.metadata else ""
        tolerance = expected_tolerance(step, self.rules, self.steps, dtype)
        found = compare(
            left, right, tolerance,
            check_dtype=self.rules.check_dtype, check_grad_flags=False, check_strides=False,
        )  # fmt: skip
        detail = f"the reference here is what the test expects. {found.detail if found else ''}".rstrip()
        return None if found is None else msgspec.structs.replace(found, detail=detail)

    def _refusal(self, step: Step, index: int, candidate: Trace, reference: Trace) -> list[Misalignment]:
        """Return the difference at a step that the reference refuses: the candidate accepts it or raises another error.

        Error classes are compared only if torch raises on both sides, step by step. Messages are never compared.
        """
        left, right = candidate.values[index], reference.values[index]
        if not isinstance(right, Refusal) or not right:
            return []  # In this program, for example a shrunk one, the reference accepts the step.
        call = Call(name=last_name(step.target))
        message = f"{step.target}: {right}: {right.said}"[:2000]
        if not left:
            return [
                Misalignment(
                    kind="leniency", step=index, at=call, candidate="accepts", reference=f"raises {right}",
                    detail=message,
                )
            ]  # fmt: skip
        is_torchs = candidate.shown is None and not candidate.is_remote and candidate.around is None
        if left == right or not is_torchs:
            return []
        return [
            Misalignment(
                kind="error", step=index, at=call, candidate=f"raises {left}", reference=f"raises {right}",
                detail=f"{left}: {left.said}"[:2000],
            )
        ]  # fmt: skip

    def _is_set_aside(self, index: int, kind: Kind) -> bool:
        """Whether a difference of this kind is accepted of the call that made a value."""
        if not self.rules.set_aside:
            return False
        maker = self.steps[maker_of(self.steps, index)]
        return self.rules.sets_aside(step_operator(maker, self.steps), kind)

    def compared(
        self, left: Observation, right: Observation, *, flags: bool = True, part: Part | None = None
    ) -> Misalignment | None:
        """Return how a part of the candidate's run departs from the same part of the reference's."""
        dtype = right.metadata.dtype if right.metadata else ""
        index = part[1] if part is not None and isinstance(part[1], int) else None
        operators = self.operators
        if part is not None and part[0] == "value" and len(operators) > 1:
            operators = self.rules.operators(self.steps, self._values_of_reference, index)
        tolerance = self.rules.tolerance(operators, dtype)
        if tolerance.strictness == "measured" and part is not None and isinstance(right.data, _Tensor):
            right = right._replace(exact=self._exact.find(part, right.data.dtype))
        check_dtype, check_strides = self.rules.check_dtype, self._has_strides
        if index is not None and self.rules.set_aside:
            check_dtype = check_dtype and not self._is_set_aside(index, "dtype")
            check_strides = check_strides and not self._is_set_aside(index, "metadata")
            left = _in_shape_of(right, left) if self._is_set_aside(index, "shape") else left
        return compare(
            left, right, tolerance,
            check_dtype=check_dtype, check_grad_flags=flags, check_strides=check_strides,
        )  # fmt: skip

    def _raised(self, candidate: Trace) -> Misalignment:
        failure = candidate.failure
        assert failure is not None  # noqa: S101 - the caller looked
        step = self.steps[failure.step]
        call, text = Call(name=self.names[failure.step]), failure.message[:2000]
        if failure.kind == OutOfBoundsError.__name__ and result_bands_of(step):
            beside = "writes to its own memory only"
            return Misalignment(kind="mutation", step=failure.step, at=call, candidate=text, reference=beside)
        if failure.kind == OperatorCheckError.__name__ and operator_check_of(step):
            declared = "does what it declares"
            return Misalignment(kind="metadata", step=failure.step, at=call, candidate=text, reference=declared)
        return Misalignment(
            kind="error",
            step=failure.step,
            at=call,
            candidate=f"raises {failure.kind}",
            reference="returns",
            detail=f"{failure.kind}: {text}",
        )

    def _written(
        self, index: int, candidate: tuple[torch.Tensor, torch.Tensor], reference: tuple[torch.Tensor, torch.Tensor]
    ) -> list[Misalignment]:
        """Return that only the candidate wrote to a value, told by its own bits: by however little, it is a write."""
        if same_bits(*candidate) or not same_bits(*reference):
            return []
        # The numbers are said where a tolerance does not hide them.
        ended = self.compared(observed(candidate[0]), observed(reference[0]), part=("end", index))
        if ended is not None:
            return placed(ended, "mutation", index, Value(name=self.names[index], aspect="end"))
        return [
            Misalignment(
                kind="mutation", step=index, at=Value(name=self.names[index], aspect="end"),
                candidate="writes to it", reference="leaves it alone",
            )
        ]  # fmt: skip

    def _end_state(self, candidate: Trace, reference: Trace) -> list[Misalignment]:
        found = []
        for index in range(len(self.steps)):
            if candidate.shown is not None and (
                index not in candidate.shown or self.steps[index].op not in {PLACEHOLDER, CALL_FUNCTION}
            ):
                continue
            left, right = candidate.values[index], reference.values[index]
            if has_state(right):
                found += self._module_state(left, right, index)
            elif isinstance(right, _Tensor):
                found += self._mutation(candidate, reference, index)
        for position, weight in candidate.cotangents.items():
            source = self.cotangents[position]
            if not same_bits(weight, source.to(weight.dtype)):
                left, right = observed(weight), observed(source)
                at = Cotangent(position=position)
                found += placed(self.compared(left, right), "mutation", len(self.steps) - 1, at)
        return found

    def _module_state(self, left: torch.nn.Module, right: torch.nn.Module, index: int) -> list[Misalignment]:
        found = []
        ours, theirs = left.state_dict(), right.state_dict()
        if ours.keys() != theirs.keys() and not has_own_names(left):  # Of another interpreter it is a note.
            sides = [", ".join(sorted(one.keys() - other.keys())) for one, other in ((ours, theirs), (theirs, ours))]
            shown = [f"also has {names}" if names else "has nothing besides" for names in sides]
            found.append(
                Misalignment(
                    kind="state", step=index, at=State(), candidate=shown[0],
                    reference=shown[1],
                )
            )  # fmt: skip
        for name, expected in theirs.items():
            if name in ours:
                misalignment = self.compared(
                    observed(ours[name]), observed(expected), flags=False, part=("state", (index, name))
                )
                found += placed(misalignment, "state", index, State(name=name))
        return found

    def _mutation(self, candidate: Trace, reference: Trace, index: int) -> list[Misalignment]:
        """Return how the final state of a value departs if the value at its step did not."""
        left, right = candidate.values[index], reference.values[index]
        if not isinstance(left, _Tensor):
            return []
        traces, has_flags = (candidate, reference), self._has_flags and candidate.has_flags
        seen_left, seen_right = candidate.observations[index], reference.observations[index]
        if seen_left is not None and seen_right is not None:
            seen = as_moved((seen_left, seen_right), index, self.steps, traces)
            if self.compared(*seen, flags=has_flags, part=("value", index)):
                return []
        is_input = self.steps[index].op == PLACEHOLDER and not candidate.is_remote
        if (is_input or not self.rules.check_allclose) and seen_left is not None and seen_right is not None:
            found = self._written(index, (left, seen_left.data), (right, seen_right.data))
            if found or not self.rules.check_allclose:
                return found
        ended = as_moved((observed(left), observed(right)), index, self.steps, traces)
        misalignment = self.compared(*ended, flags=has_flags, part=("end", index))
        return (
            placed(misalignment, "mutation", index, Value(name=self.names[index], aspect="end")) if misalignment else []
        )


def _in_shape_of(right: Observation, left: Observation) -> Observation:
    """Return the candidate's tensor in the reference's shape if it has as many elements."""
    if left.metadata is None or right.metadata is None or left.data.numel() != right.data.numel():
        return left
    data = left.data.reshape(right.metadata.shape)
    return Observation(left.metadata._replace(shape=right.metadata.shape, strides=data.stride()), data)


def _is_argument(step: Step, index: int, candidate: Trace, sides: tuple[Observation, Observation]) -> bool:
    """Whether a candidate returned an argument that is a leaf, as an operator with nothing to do may.

    A host does not report identities: there the value counts as the argument if it is a leaf with the same elements.
    """
    left, right = (side.metadata for side in sides)
    if left is None or right is None or not left.is_leaf or left.requires_grad != right.requires_grad:
        return False
    value = candidate.values[index]
    given = [candidate.values[ref.index] for ref in step_refs(step)]
    return any(other is value or (candidate.is_remote and _is_same_leaf(other, value)) for other in given)


def _is_same_leaf(left: Any, right: Any) -> bool:
    return isinstance(left, _Tensor) and isinstance(right, _Tensor) and left.is_leaf and is_same(left, right)


def is_of_hook(step: Step) -> bool:
    """Whether a backward pass gives a step its value: a step of a hook, or its registration, which holds its calls."""
    return HOOK[0] in step.modes or step.target == "register_hook"


def _arity(left: Any, right: Any) -> Misalignment | None:
    if not isinstance(right, tuple | list) or isinstance(right, torch.Size):
        return None
    if isinstance(left, tuple | list) and len(left) == len(right):
        return None
    shown = f"{len(left)} values" if isinstance(left, tuple | list) else f"one {type(left).__name__}"
    return Misalignment(kind="shape", step=-1, candidate=shown, reference=f"{len(right)} values")


# Scalars that a body read from a tensor: they are compared as elements of that tensor, with its tolerance.
#
# A sum may differ in its last place, and so may the result of its ``item()``. A Python float would have to be equal.


def _as_elements(
    sides: tuple[Observation, Observation], index: int, steps: Sequence[Step], reference: Trace
) -> tuple[Observation, Observation]:
    """Return two numbers as 0-dim tensors of the dtype of the tensor that they were read from; other values as is.

    Args:
        sides: The candidate's and the reference's observation of the step.
        index: Of the step.
        steps: Of the program.
        reference: Trace with snapshots.
    """
    kind = type(sides[1].data)
    # Integers must be equal, and a number of another type is a difference by itself.
    if kind not in {float, complex} or type(sides[0].data) is not kind:
        return sides
    dtype = _source_dtype(index, steps, reference)
    if dtype not in (FLOATING if kind is float else COMPLEX):
        return sides
    left, right = (torch.tensor(side.data, dtype=getattr(torch, dtype)) for side in sides)
    return Observation(metadata(left), left), Observation(metadata(right), right)


def _source_dtype(index: int, steps: Sequence[Step], reference: Trace) -> str:
    """Return the dtype of the tensor that a number was read from, also through ``tolist``; ``""`` if from none."""
    refs = step_refs(steps[index])
    while refs:
        index = refs[0].index
        found = reference.observations[index]
        if found is not None and found.metadata is not None:
            return found.metadata.dtype
        refs = step_refs(steps[index])
    return ""


# What the ranks of a group do not agree on, as differences of kind ``rank``.


def with_rank_faults(
    found: list[Misalignment], candidate: Trace, examination: RestExamination, *, has_backward: bool = False
) -> list[Misalignment]:
    """Return differences with those of the ranks, each in place of what else differs there.

    Args:
        found: Differences of the values in the order of steps, or of the gradients from the output back.
        candidate: The candidate's trace.
        examination: The examination of the program.
        has_backward: Whether they are those of the backward pass.
    """
    if not candidate.rank_faults:
        return found
    faults = [fault for fault in candidate.rank_faults if (fault.key is not None) is has_backward]
    own = [
        _difference(fault, examination) for fault in faults if fault.is_call or _is_defined(fault, examination.steps)
    ]
    # A value that the ranks do not agree on has no elements that could be compared.
    places = {(item.step, str(item.at)) for item in own}
    others = [item for item in found if (item.step, str(item.at)) not in places]
    return sorted([*own, *others], key=lambda item: -item.step if has_backward else item.step)


def _is_defined(fault: RankFault, steps: Sequence[Step]) -> bool:
    """Whether anything is defined of the elements on which ranks differ; of uninitialized memory nothing is."""
    row = row_of(step_operator(steps[maker_of(steps, fault.step)], steps))
    return row is None or row.broken is not nothing


def _difference(fault: RankFault, examination: RestExamination) -> Misalignment:
    return Misalignment(
        kind="rank", step=fault.step, at=_place(fault, examination), candidate=fault.seen, reference=fault.expected,
        detail=fault.detail[:2000],
    )  # fmt: skip


def _place(fault: RankFault, examination: RestExamination) -> Place:
    names = examination.names
    if fault.state:
        return State(name=fault.state)
    if fault.key is None:
        if fault.is_call:
            return Call(name=names[fault.step])
        return value_place(names, examination.steps, fault.step)
    if fault.is_call:
        return BackwardPass()
    return Gradient(name=names[fault.step], parameter="" if isinstance(fault.key, int) else fault.key[1])
