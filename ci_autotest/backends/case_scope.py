"""The scope of a candidate, case by case: leave out what its row does not take, and run the rest without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.backward_passes import READS_GRADIENT
from ci_autotest.program.ir import HOOK, NO_GRAD, REGISTERS, Program, step_refs
from ci_autotest.values.dtypes import COMPLEX, FLOATING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.program.ir import Step
    from ci_autotest.values.kernel_scope import RunMode

#: Two of the profiles in ``record/draw/profiles.py``, which backends do not import.
_ORDINARY, _LARGE_SHAPES = "ordinary", "large_shapes"
_GRADIENT: Final = "the body asks for a gradient; the candidate's row has forward_only or inference"
_LAYOUT: Final = "a call gets a tensor that is not contiguous; the candidate's row has layouts: contiguous"
#: Attributes of a tensor that differ where no gradient is asked.
_FLAGS: Final = frozenset({"requires_grad", "is_leaf", "grad_fn", "grad", "retains_grad"})


class CaseScope(NamedTuple):
    """What a candidate takes of cases as a whole; an empty set means no limit.

    The functions of ``replace`` are asked call by call, by ``CallScope``; of their rows, only the profiles stand here.

    Attributes:
        profiles: Profiles of cases.
        dtypes: Names of the dtypes of a case's floating-point and complex tensors, results included.
        layouts: Layouts of the tensors that calls get.
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
        # A body that asks for a gradient does so in every case, whatever its profile.
        if self.needs_gradient(attempt.program):
            return _outside(_GRADIENT)
        return _outside(self._profile(attempt) or self._tensors(attempt.program, attempt.trace.values))

    def refusal_of_program(self, program: Program) -> Unsupported | None:
        """Return what of a saved program the candidate does not take, by its inputs; ``None`` if it takes it."""
        # A part of a body may have whole numbers only, which do not count in the body.
        dtypes = {spec.dtype for spec in program.specs.values()} & (FLOATING | COMPLEX)
        return _outside(_GRADIENT if self.needs_gradient(program) else self._dtypes(dtypes))

    def needs_gradient(self, program: Program) -> bool:
        """Whether a body asks for gradients, which a candidate that is not trained does not have."""
        return not self.is_trained and any(map(_needs_gradient, program.steps))

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

    def _tensors(self, program: Program, values: Sequence[Any]) -> str:
        if not (self.dtypes or self.layouts):
            return ""
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        outside = self._dtypes({DTYPE_NAMES[value.dtype] for value in tensors})
        if outside or not self.layouts:
            return outside
        taken = {ref.index for _, step in program.calls for ref in step_refs(step) if ref.index < len(values)}
        given = (value for value in map(values.__getitem__, taken) if isinstance(value, torch.Tensor))
        return "" if all(map(is_contiguous, given)) else _LAYOUT

    def _dtypes(self, seen: Collection[str]) -> str:
        # Indices and masks beside the data do not count, so integers are looked at only if there is nothing else.
        inexact = {name for name in seen if name in FLOATING or name in COMPLEX}
        outside = sorted((inexact or {*seen}) - self.dtypes) if self.dtypes else []
        if not outside:
            return ""
        return f"dtype {', '.join(outside)}; the candidate's row has dtypes: {', '.join(sorted(self.dtypes))}"


def _outside(detail: str) -> Unsupported | None:
    return Unsupported(UnsupportedReason.OUT_OF_SCOPE, detail) if detail else None


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
    is_read = step.target == "builtins.getattr" and len(step.args) > 1 and step.args[1] in _FLAGS
    return is_read or step.target in READS_GRADIENT or not {*HOOK, *REGISTERS}.isdisjoint(step.modes)


def is_contiguous(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a dense one in row-major order."""
    return tensor.layout is torch.strided and tensor.is_contiguous()
