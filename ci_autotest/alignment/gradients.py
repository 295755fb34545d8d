"""Compare the gradients of one run on both sides: of every input, parameter and intermediate, from the output back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import torch

from ci_autotest.alignment.aliasing import of_one_side
from ci_autotest.alignment.compare import placed
from ci_autotest.alignment.elements import has_any
from ci_autotest.alignment.fast_path import is_intermediate
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.sameness import dense
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.substitute.replaced_modules import has_own_names
from ci_autotest.program.backward_passes import differentiated_twice
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.program.written_values import written_values
from ci_autotest.values.verdict import BackwardPass, Gradient, Misalignment

if TYPE_CHECKING:
    from ci_autotest.alignment.blame.reference_error import Part
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import GradientKey, Observation, Trace
    from ci_autotest.program.ir import Program, Step


class RestExamination(Protocol):
    """What is asked of the examination that compares the rest of the run."""

    program: Program
    steps: tuple[Step, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each step's value, as the printed program has it."""

    def run(self, backend: Backend) -> Trace:
        """Return a side's trace with snapshots and gradients."""

    def compared(
        self, left: Observation, right: Observation, *, flags: bool = True, part: Part | None = None
    ) -> Misalignment | None:
        """Return how a part of the candidate's run departs from the same part of the reference's."""


def gradient_differences(examination: RestExamination, candidate: Trace, reference: Trace) -> list[Misalignment]:
    """Return every difference of gradients, from the output back: an earlier one may follow from a later one."""
    calls = examination.program.calls
    last = calls[-1][0] if calls else len(examination.steps) - 1
    if not candidate.has_backward:
        return []
    if reference.backward_failure is not None:
        return _accepted_misuse(examination, candidate, reference)
    if candidate.backward_failure is not None:
        raised = candidate.backward_failure
        return [
            Misalignment(
                kind="error", step=last, at=BackwardPass(), candidate=f"raises {raised.kind}",
                reference="returns", detail=str(raised)[:2000],
            )
        ]  # fmt: skip
    found = []
    twice = differentiated_twice(examination.steps)
    shared = candidate.gradients.keys()
    merged = of_one_side(candidate, reference)
    for key in sorted(reference.gradients, key=_gradient_order, reverse=True):
        index = key if isinstance(key, int) else key[0]
        if key in merged and examination.steps[index].op != PLACEHOLDER:
            continue
        if key not in shared and (
            candidate.shown is not None or (candidate.is_remote and is_intermediate(key, examination.program))
        ):
            continue  # A compiler shows no gradients of intermediates, and a host only some of them.
        if isinstance(key, tuple) and _lacks(candidate.values[index], key[1]):
            continue
        if isinstance(key, int) and _is_overwritten_view(reference, key):
            continue  # After a write to a view, gradients flow through its base and not through the view.
        if isinstance(key, int) and key in twice and not _is_leaf(reference, key):
            continue
        left, right = candidate.gradients.get(key), reference.gradients[key]
        at = Gradient(name=examination.names[index], parameter="" if isinstance(key, int) else key[1])
        found += placed(_gradient(examination, left, right, key), "gradient", index, at)
    return found


def _accepted_misuse(examination: RestExamination, candidate: Trace, reference: Trace) -> list[Misalignment]:
    """Return the misuse of autograd that the candidate's backward pass accepts and the reference's refuses.

    Any other refusal leaves the gradients undefined on the reference; the forward comparison stands (rule 2).
    """
    if candidate.backward_failure is not None or not candidate.gradients or not _is_misused(examination):
        return []
    writes = [index for index, step in enumerate(examination.steps) if written_values(step, examination.steps)]
    return [
        Misalignment(
            kind="leniency", step=writes[-1] if writes else len(examination.steps) - 2, at=BackwardPass(),
            candidate="accepts", reference="raises", detail=str(reference.backward_failure)[:2000],
        )
    ]  # fmt: skip


def _is_misused(examination: RestExamination) -> bool:
    """Whether the reference's backward pass works only if autograd keeps copies of overwritten values.

    It then refused because a value that a gradient needs was overwritten, and a candidate that accepts this
    computes a wrong gradient. Running autograd in that mode decides it, not the text of its error.
    """
    if examination.run(TorchBackend()).backward_failure is None:
        return False
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        again = examination.run(TorchBackend())
    return again.failure is None and again.backward_failure is None


def _gradient(examination: RestExamination, left: Any, right: Any, key: GradientKey) -> Misalignment | None:
    if left is None or right is None:
        present = right if left is None else left
        if present is None or not has_any(dense(present)):
            return None  # To autograd, no gradient and a gradient of zeros are the same.
        shown = ["no gradient" if side is None else str(observed(side).metadata) for side in (left, right)]
        return Misalignment(kind="gradient", step=-1, candidate=shown[0], reference=shown[1])
    misalignment = examination.compared(observed(left), observed(right), flags=False, part=("gradient", key))
    if misalignment is None:
        return None
    detail = misalignment.kind if misalignment.kind in {"shape", "dtype"} else misalignment.detail
    return msgspec.structs.replace(misalignment, kind="gradient", detail=detail)


def _is_leaf(trace: Trace, index: int) -> bool:
    facts = trace.facts[index]
    return facts is not None and bool(facts[1])


def _is_overwritten_view(trace: Trace, index: int) -> bool:
    """Whether a value is a view that a later step wrote to."""
    value, facts = trace.values[index], trace.facts[index]
    return facts is not None and not facts[1] and value._is_view() and value._version != facts[2]  # noqa: SLF001


def _lacks(module: object, name: str) -> bool:
    """Whether a module that may have other parameters lacks this one."""
    return has_own_names(module) and name not in module.state_dict()  # type: ignore[attr-defined]


def _gradient_order(key: GradientKey) -> tuple[int, str]:
    return (key, "") if isinstance(key, int) else key
