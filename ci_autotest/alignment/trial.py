"""A trial: one program on candidate and reference, and everything in which they depart. The one caller of ``compare``.

``quick_aligned`` looks once, at the end, with copies of those values only that are known to be
overwritten; what it cannot vouch for is run again by ``Examination`` with a copy of every value at
its step, which says what differs, where and in which order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import torch

from ci_autotest.alignment.compare import compare
from ci_autotest.alignment.elements import close, same_bits
from ci_autotest.alignment.isolate import writes_in_place
from ci_autotest.alignment.moved import as_moved
from ci_autotest.alignment.scalars import as_elements
from ci_autotest.backends.told import ToldModule
from ci_autotest.backends.torch_eager import observed
from ci_autotest.backends.trace import Observation
from ci_autotest.judgement import BACKWARD, Misalignment, is_misuse
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, HOOK, OUTPUT, PLACEHOLDER
from ci_autotest.tolerance import Tolerance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.alignment.rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import GradientKey, Trace
    from ci_autotest.judgement import Kind
    from ci_autotest.program.ir import Program, Step

#: How a misalignment of the gradient that was put in begins.
COTANGENT: Final = "gradient put into output"
#: What a misaligned parameter or buffer is called, around its name.
_STATE: Final = "state "
_AFTER: Final = " after the run"
#: Elements below which ``torch.equal`` is faster than comparing memory.
_SMALL: Final = 2048
_equal: Final = torch.equal
_Tensor: Final = torch.Tensor
_EXACT: Final = Tolerance(0.0, 0.0)
_NAMES: Final[dict[torch.dtype, str]] = {
    value: str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)
}


def quick_aligned(program: Program, candidate: Trace, reference: Trace, rules: Rules) -> bool:
    """Whether everything is aligned at the end of both runs and nothing moved in between.

    A version that moved without a copy of what was there, a fact that differs or an element outside the
    tolerance makes the answer no, which only means that an ``Examination`` must look.
    """
    if (
        candidate.failure is not None
        or candidate.backward_failure is not None
        or reference.backward_failure is not None
        or len(candidate.values) != len(reference.values)
    ):
        return False
    return (
        _look_at(candidate)(program, candidate, reference, rules)
        and _gradients_aligned(candidate, reference, program, rules)
        and _cotangents_kept(candidate, reference, rules)
    )


def _look_at(candidate: Trace) -> Callable[[Program, Trace, Trace, Rules], bool]:
    """Return the quick look for what a side shows of its values."""
    if candidate.is_told:
        return _told_aligned
    return _shown_aligned if candidate.shown is not None else _values_aligned


def _values_aligned(program: Program, candidate: Trace, reference: Trace, rules: Rules) -> bool:
    if candidate.facts != reference.facts:
        return False
    is_tolerant = rules.is_tolerant
    for index, (facts, left, right) in enumerate(zip(reference.facts, candidate.values, reference.values, strict=True)):
        if facts is None:
            if left is not right and not _is_mute(program, index) and not _plain_aligned(left, right):
                return False
        elif (
            (left._version != facts[2] or right._version != facts[2])
            and not _was_aligned(index, (candidate, reference), program, rules)
        ) or (
            left._version != right._version
            or left.requires_grad is not right.requires_grad
            or left.is_leaf is not right.is_leaf
            or left._is_view() is not right._is_view()
            or not ((is_tolerant and _is_same_small(left, right)) or _tensors_aligned(left, right, program, rules))
        ):
            return False
    return True


def overwritten(trace: Trace) -> frozenset[int]:
    """Return the indices of values that a later step wrote to."""
    return frozenset(
        index
        for index, (facts, value) in enumerate(zip(trace.facts, trace.values, strict=True))
        if facts is not None and value._version != facts[2]
    )


def _was_aligned(index: int, sides: tuple[Trace, Trace], program: Program, rules: Rules) -> bool:
    """Whether both sides copied a value before it was written to, and the copies are aligned."""
    left, right = (side.copies.get(index) for side in sides)
    return left is not None and right is not None and _tensors_aligned(left[0], right[0], program, rules)


def _shown_aligned(program: Program, candidate: Trace, reference: Trace, rules: Rules) -> bool:
    """Hold what a compiler shows, its inputs and outputs, against the same values of the reference."""
    for index in candidate.shown or ():
        left, right = candidate.values[index], reference.values[index]
        if reference.facts[index] is None:
            if left is not right and not _is_mute(program, index) and not _plain_aligned(left, right):
                return False
        elif (
            left.requires_grad is not right.requires_grad
            or left.is_leaf is not right.is_leaf
            or not _tensors_aligned(left, right, program, rules)
        ):
            return False
    return True


def _told_aligned(program: Program, candidate: Trace, reference: Trace, rules: Rules) -> bool:
    """Hold what another process tells against the reference; a value that was written to must be looked at again."""
    for index, facts in enumerate(reference.facts):
        if candidate.shown is not None and index not in candidate.shown:
            continue
        left, right = candidate.values[index], reference.values[index]
        if facts is None:
            if left is not right and not _is_mute(program, index) and not _plain_aligned(left, right):
                return False
        elif (
            not isinstance(left, _Tensor)
            or right._version != facts[2]
            or (candidate.has_flags and (left.requires_grad, left.is_leaf) != facts[:2])
            or not _tensors_aligned(left, right, program, rules, strides=False)
        ):
            return False
    return True


def _has_state(value: object) -> bool:
    """Whether a value is a module, of this process or of another."""
    return isinstance(value, torch.nn.Module | ToldModule)


def _is_mute(program: Program, index: int) -> bool:
    """Whether a step's result says nothing: of a module's method, the module itself is compared."""
    step = program.steps[index]
    return step.in_setup and step.op == CALL_METHOD


def _plain_aligned(left: Any, right: Any) -> bool:  # noqa: ANN401 - whatever a step gave
    if _has_state(right):
        ours, theirs = left.state_dict(), right.state_dict()
        return ours.keys() == theirs.keys() and all(
            ours[name].shape == b.shape and ours[name].dtype is b.dtype and same_bits(ours[name], b)
            for name, b in theirs.items()
        )
    if isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and compare(observed(left), observed(right), _EXACT) is None
    if isinstance(right, tuple | list) and not isinstance(right, torch.Size):
        # Their tensors are steps of their own; only the arity is left.
        return isinstance(left, tuple | list) and len(left) == len(right)
    return compare(Observation(None, left), Observation(None, right), _EXACT) is None


def _is_same_small(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are small and equal, the common case, which one call says.

    It calls -0.0 and 0.0 equal, which a tolerance does too; what it cannot compare, it does not vouch for. What lies on
    a device would be compared by the device's own kernel.
    """
    try:
        return left.is_cpu and left.dtype is right.dtype and right.numel() < _SMALL and _equal(left, right)
    except RuntimeError:  # sparse layouts
        return False


def _tensors_aligned(
    left: torch.Tensor, right: torch.Tensor, program: Program, rules: Rules, *, strides: bool = True
) -> bool:
    if left.dtype is not right.dtype or left.layout is not right.layout or left.shape != right.shape:
        return False
    if same_bits(left, right):
        return rules.strictness != "bitwise" or not strides or left.stride() == right.stride()
    operators = rules.operators(program.steps)
    return close(left, right, rules.tolerance(operators, _NAMES[right.dtype]))


def _gradients_aligned(candidate: Trace, reference: Trace, program: Program, rules: Rules) -> bool:
    if not candidate.goes_back:
        return True
    left, right = candidate.gradients, reference.gradients
    is_whole = candidate.shown is None and not candidate.is_told
    if (is_whole and left.keys() != right.keys()) or (candidate.is_told and not _has_leaves(left, right, program)):
        return False
    is_tolerant = rules.is_tolerant
    for key, found in left.items():
        expected = right.get(key)
        if found is None or expected is None:
            if found is not expected:
                return False
        elif not (
            (is_tolerant and _is_same_small(found, expected))
            or _tensors_aligned(found, expected, program, rules, strides=not candidate.is_told)
        ):
            return False
    return True


def _has_leaves(left: Mapping[GradientKey, Any], right: Mapping[GradientKey, Any], program: Program) -> bool:
    """Whether a side has a word on the gradient of each leaf and parameter of which the other has one."""
    return all(key in left for key in right if not _is_intermediate(key, program))


def _is_intermediate(key: GradientKey, program: Program) -> bool:
    return isinstance(key, int) and program.steps[key].op != PLACEHOLDER


def _cotangents_kept(candidate: Trace, reference: Trace, rules: Rules) -> bool:
    """Whether no side wrote into the gradient that was put in: both began as copies of one source."""
    others = reference.cotangents
    for position, left in candidate.cotangents.items():
        right = others.get(position)
        if right is not None and not ((rules.is_tolerant and _is_same_small(left, right)) or same_bits(left, right)):
            return False
    return True


class Examination:
    """Run a program on both sides with a copy of every value, and say everything that differs, in order.

    Args:
        program: What is run.
        sources: Data by key.
        cotangents: Gradients to put in, by position of the output's tensors.
        rules: How values are compared.
    """

    def __init__(
        self,
        program: Program,
        sources: Mapping[str, Any],
        cotangents: Mapping[int, Any],
        rules: Rules,
    ) -> None:
        """Hold what is run."""
        self.program = program
        self.steps = program.steps
        self.sources = sources
        self.cotangents = cotangents
        self.rules = rules
        self.operators = rules.operators(self.steps)
        self._has_strides = True

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
            return []  # nothing is defined to compare with
        self._has_strides = not candidate.is_told
        found = self._values(candidate, reference)
        if candidate.failure is not None:
            return [*found, self._raised(candidate)]
        found += self._end_state(candidate, reference)
        # What a hook saw is a gradient: it comes last, because the search for its cause begins with the others.
        return found + self._gradients(candidate, reference) + self._values(candidate, reference, in_hooks=True)

    def _values(self, candidate: Trace, reference: Trace, *, in_hooks: bool = False) -> list[Misalignment]:
        found = []
        shown = candidate.shown
        stop = candidate.failure.step if candidate.failure else len(self.steps)
        for index, step in enumerate(self.steps[:stop]):
            if (
                step.op in {PLACEHOLDER, OUTPUT}
                or step.in_setup
                or _is_hooked(step) is not in_hooks
                or (shown is not None and index not in shown)
            ):
                continue
            left, right = candidate.observations[index], reference.observations[index]
            if shown is not None:
                # A compiler shows a value at the end of the run, after later steps may have written to it.
                left, right = observed(candidate.values[index]), observed(reference.values[index])
            if left is not None and right is not None:
                arity = _arity(candidate.values[index], reference.values[index])
                sides = as_elements((left, right), index, self.steps, reference)
                sides = as_moved(sides, index, self.steps, (candidate, reference))
                misalignment = arity or self._compared(*sides, flags=candidate.has_flags)
                if misalignment is not None:
                    found.append(_placed(misalignment, index, f"value of {step.name}"))
        return found

    def _compared(self, left: Observation, right: Observation, *, flags: bool = True) -> Misalignment | None:
        dtype = right.metadata.dtype if right.metadata else ""
        tolerance = self.rules.tolerance(self.operators, dtype)
        return compare(
            left, right, tolerance,
            check_dtype=self.rules.check_dtype, check_grad_flags=flags, check_strides=self._has_strides,
        )  # fmt: skip

    def _raised(self, candidate: Trace) -> Misalignment:
        failure = candidate.failure
        assert failure is not None  # noqa: S101 - the caller looked
        step = self.steps[failure.step]
        return Misalignment(
            kind="error",
            step=failure.step,
            what=f"call of {step.name}",
            candidate=f"raises {failure.kind}",
            reference="returns",
            detail=f"{failure.kind}: {failure.message[:2000]}",
        )

    def _end_state(self, candidate: Trace, reference: Trace) -> list[Misalignment]:
        found = []
        for index in range(len(self.steps)):
            if candidate.shown is not None and (
                index not in candidate.shown or self.steps[index].op not in {PLACEHOLDER, CALL_FUNCTION}
            ):
                continue
            left, right = candidate.values[index], reference.values[index]
            if _has_state(right):
                found += self._module_state(left, right, index)
            elif isinstance(right, _Tensor):
                found += self._mutation(candidate, reference, index)
        for position, weight in candidate.cotangents.items():
            source = self.cotangents[position]
            if not same_bits(weight, source.to(weight.dtype)):
                left, right = observed(weight), observed(source)
                what = f"{COTANGENT} {position}, which the backward pass wrote to"
                found += _moved(self._compared(left, right), "mutation", len(self.steps) - 1, what)
        return found

    def _module_state(self, left: torch.nn.Module, right: torch.nn.Module, index: int) -> list[Misalignment]:
        found = []
        ours, theirs = left.state_dict(), right.state_dict()
        if ours.keys() != theirs.keys():
            sides = [", ".join(sorted(one.keys() - other.keys())) for one, other in ((ours, theirs), (theirs, ours))]
            shown = [f"also has {names}" if names else "has nothing besides" for names in sides]
            found.append(
                Misalignment(
                    kind="state", step=index, what="names of the state after the run", candidate=shown[0],
                    reference=shown[1],
                )
            )  # fmt: skip
        for name, expected in theirs.items():
            if name in ours:
                misalignment = self._compared(observed(ours[name]), observed(expected), flags=False)
                found += _moved(misalignment, "state", index, f"{_STATE}{name}{_AFTER}")
        return found

    def _mutation(self, candidate: Trace, reference: Trace, index: int) -> list[Misalignment]:
        """Return how the end state of a value departs where the value itself, at its step, did not."""
        left, right = candidate.values[index], reference.values[index]
        if not isinstance(left, _Tensor):
            return []
        traces = (candidate, reference)
        seen_left, seen_right = candidate.observations[index], reference.observations[index]
        if seen_left is not None and seen_right is not None:
            seen = as_moved((seen_left, seen_right), index, self.steps, traces)
            if self._compared(*seen, flags=candidate.has_flags):
                return []
        ended = as_moved((observed(left), observed(right)), index, self.steps, traces)
        what = f"{self.steps[index].name}{_AFTER}"
        return _moved(self._compared(*ended, flags=candidate.has_flags), "mutation", index, what)

    def _gradients(self, candidate: Trace, reference: Trace) -> list[Misalignment]:
        calls = self.program.calls
        last = calls[-1][0] if calls else len(self.steps) - 1
        if not candidate.goes_back:
            return []
        if reference.backward_failure is not None:
            return self._accepted_misuse(candidate, reference)
        if candidate.backward_failure is not None:
            text = candidate.backward_failure
            return [
                Misalignment(
                    kind="error", step=last, what=BACKWARD, candidate=f"raises {text.partition(':')[0]}",
                    reference="returns", detail=text[:2000],
                )
            ]  # fmt: skip
        found = []
        shared = candidate.gradients.keys()
        for key in sorted(reference.gradients, key=_gradient_order, reverse=True):
            index = key if isinstance(key, int) else key[0]
            if key not in shared and (
                candidate.shown is not None or (candidate.is_told and _is_intermediate(key, self.program))
            ):
                continue  # A compiler shows no gradients of intermediates, and a host not all of them.
            left, right = candidate.gradients.get(key), reference.gradients[key]
            what = f"gradient of {self.steps[index].name}" + ("" if isinstance(key, int) else f".{key[1]}")
            misalignment = self._gradient(left, right)
            if misalignment is not None:
                found.append(_placed(misalignment, index, what))
        return found

    def _accepted_misuse(self, candidate: Trace, reference: Trace) -> list[Misalignment]:
        """Return the misuse of autograd that the candidate's backward pass accepts.

        Any other refusal leaves the gradients undefined on the reference; the forward comparison stands (rule 2).
        """
        refusal = reference.backward_failure or ""
        if candidate.backward_failure is not None or not candidate.gradients or not is_misuse(refusal):
            return []
        writes = [index for index, step in enumerate(self.steps) if writes_in_place(step, self.steps)]
        return [
            Misalignment(
                kind="leniency", step=writes[-1] if writes else len(self.steps) - 2, what=BACKWARD,
                candidate="accepts", reference="raises", detail=refusal[:2000],
            )
        ]  # fmt: skip

    def _gradient(self, left: Any, right: Any) -> Misalignment | None:  # noqa: ANN401 - a tensor or None
        if left is None or right is None:
            if left is right:
                return None
            shown = ["no gradient" if side is None else str(observed(side).metadata) for side in (left, right)]
            return Misalignment(kind="gradient", step=-1, what="", candidate=shown[0], reference=shown[1])
        misalignment = self._compared(observed(left), observed(right), flags=False)
        if misalignment is None:
            return None
        detail = misalignment.kind if misalignment.kind in {"shape", "dtype"} else misalignment.detail
        return msgspec.structs.replace(misalignment, kind="gradient", detail=detail)


def _is_hooked(step: Step) -> bool:
    return HOOK[0] in step.modes


def _gradient_order(key: GradientKey) -> tuple[int, str]:
    return (key, "") if isinstance(key, int) else key


def _arity(left: Any, right: Any) -> Misalignment | None:  # noqa: ANN401 - whatever a step gave
    if not isinstance(right, tuple | list) or isinstance(right, torch.Size):
        return None
    if isinstance(left, tuple | list) and len(left) == len(right):
        return None
    shown = f"{len(left)} values" if isinstance(left, tuple | list) else f"one {type(left).__name__}"
    return Misalignment(kind="shape", step=-1, what="", candidate=shown, reference=f"{len(right)} values")


def state_named(what: str) -> str:
    """Return the name of the parameter or buffer that a misalignment of kind ``state`` is of."""
    return what.removeprefix(_STATE).removesuffix(_AFTER)


def _placed(misalignment: Misalignment, step: int, what: str) -> Misalignment:
    return msgspec.structs.replace(misalignment, step=step, what=what)


def _moved(misalignment: Misalignment | None, kind: Kind, step: int, what: str) -> list[Misalignment]:
    if misalignment is None:
        return []
    return [msgspec.structs.replace(misalignment, kind=kind, step=step, what=what)]
