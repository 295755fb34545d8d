"""The scope of a candidate, case by case: leave out what its row does not take, and run the rest without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.backward_passes import READS_GRADIENT
from ci_autotest.program.ir import HOOK, NO_GRAD, REGISTERS, Program

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.program.ir import Step
    from ci_autotest.values.kernel_scope import RunMode

#: Two of the profiles in ``record/draw/profiles.py``, which backends do not import.
_ORDINARY, _LARGE_SHAPES = "ordinary", "large_shapes"


class CaseScope(NamedTuple):
    """What a candidate takes of cases as a whole; an empty set means no limit.

    The functions of ``replace`` are asked call by call, by ``CallScope``; of their rows, only the profiles stand here.

    Attributes:
        profiles: Profiles of cases.
        dtypes: Names of the dtypes of a case's floating-point and complex tensors.
        layouts: Layouts of a case's tensors.
        run_mode: ``training``, or how bodies are run if only values are compared.
    """

    profiles: frozenset[str] = frozenset()
    dtypes: frozenset[str] = frozenset()
    layouts: frozenset[str] = frozenset()
    run_mode: RunMode = "training"

    @property
    def is_trained(self) -> bool:
        """Whether gradients are asked of the candidate."""
        return self.run_mode == "training"

    def refusal(self, attempt: Attempt) -> Unsupported | None:
        """Return what of an attempt the candidate does not take; ``None`` if it takes the attempt."""
        detail = self._profile(attempt) or self._tensors(attempt) or self._gradient(attempt)
        return Unsupported(UnsupportedReason.OUT_OF_SCOPE, detail) if detail else None

    def narrowed(self, attempt: Attempt) -> Attempt:
        """Return an attempt as the candidate runs it: a body that is not trained runs within ``torch.no_grad()``."""
        if self.is_trained or self._gradient(attempt):
            return attempt
        return attempt._replace(program=without_gradients(attempt.program), cotangents={})

    def mark(self, trace: Trace) -> None:
        """Note in the trace of a run that it has no gradients, if the candidate is not trained."""
        if not self.is_trained:
            trace.has_flags = trace.has_backward = False

    def _profile(self, attempt: Attempt) -> str:
        # Timed cases are ordinary ones at larger sizes; no row can name their profile.
        profile = _ORDINARY if attempt.profile == _LARGE_SHAPES else attempt.profile
        if not self.profiles or profile in self.profiles:
            return ""
        return f"profile {attempt.profile}; the candidate's row has profiles: {', '.join(sorted(self.profiles))}"

    def _tensors(self, attempt: Attempt) -> str:
        if not (self.dtypes or self.layouts):
            return ""
        tensors = [value for value in attempt.trace.values if isinstance(value, torch.Tensor)]
        # Indices and masks beside the data do not count, so integers are looked at only if there is nothing else.
        inexact = [value for value in tensors if value.is_floating_point() or value.is_complex()]
        outside = {DTYPE_NAMES[value.dtype] for value in inexact or tensors} - self.dtypes if self.dtypes else ()
        if outside:
            names = ", ".join(sorted(outside))
            return f"dtype {names}; the candidate's row has dtypes: {', '.join(sorted(self.dtypes))}"
        if self.layouts and not all(map(is_contiguous, tensors)):
            return "a tensor is not contiguous; the candidate's row has layouts: contiguous"
        return ""

    def _gradient(self, attempt: Attempt) -> str:
        if self.is_trained or not any(map(_needs_gradient, attempt.program.steps)):
            return ""
        return "the body asks for a gradient; the candidate's row has forward_only or inference"


#: The scope of a candidate that takes every case.
EVERY_CASE: Final = CaseScope()


def without_gradients(program: Program) -> Program:
    """Return the program whose body runs within ``torch.no_grad()``."""
    calls = {index for index, step in program.calls if NO_GRAD[0] not in step.modes}
    steps = (
        step._replace(modes=(*step.modes, *NO_GRAD)) if index in calls else step
        for index, step in enumerate(program.steps)
    )
    return Program.of(steps)


def _needs_gradient(step: Step) -> bool:
    return step.target in READS_GRADIENT or not {*HOOK, *REGISTERS}.isdisjoint(step.modes)


def is_contiguous(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a dense one in row-major order."""
    return tensor.layout is torch.strided and tensor.is_contiguous()
