"""Find the operators that a program uses, with their arguments and dtypes, for the coverage report.

Programs of the same form share one result, so that a case costs one look-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.backends.operators.argument_binding import Binder
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.backward_passes import PASSES
from ci_autotest.program.edit import follows_from
from ci_autotest.program.ir import CALL_MODULE, is_unpacking, step_refs
from ci_autotest.program.targets import is_overload, is_own, last_name
from ci_autotest.program.written_values import is_passed_on, written_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.distribution import Distribution
    from ci_autotest.program.ir import Program, Step

#: Limit on the number of forms. Programs of further forms are not counted, so that coverage reports less than it could.
FORMS: Final = 1 << 16
_NAMESPACE: Final = "torch."
#: Calls that read what is known of a tensor, or its elements, or set a flag, and compute nothing.
_READS: Final = frozenset({
    "dim", "element_size", "get_device", "is_complex", "is_contiguous", "is_floating_point", "is_signed", "item",
    "ndimension", "nelement", "numel", "requires_grad_", "retain_grad", "size", "storage_offset", "stride", "tolist",
    "__len__",
})  # fmt: skip


class Use(NamedTuple):
    """The calls of one operator in a program.

    Attributes:
        operator: Its canonical name.
        arguments: Torch's names of the arguments given, whatever their values.
        dtypes: Dtypes of its tensor arguments, or of its result if it has none.
    """

    operator: str
    arguments: tuple[str, ...]
    dtypes: tuple[str, ...]


class OperatorUsage:
    """The forms of programs, numbered, and the operators that each of them uses."""

    def __init__(self) -> None:
        """Start with form 0, the form of a program that calls nothing."""
        self._forms: dict[Any, int] = {}
        self._binder = Binder()
        self.uses: list[tuple[Use, ...]] = [()]

    def form(self, attempt: Attempt) -> int:
        """Return the number of the form of an attempt's program."""
        # Targets and the types of arguments decide which names the arguments have.
        key: list[Any] = []
        for step in attempt.program.steps:
            if step.is_call:
                key += (step.target, *map(type, step.args), *(name for name, _ in step.kwargs))
        key += [value.dtype for value in attempt.trace.values if isinstance(value, torch.Tensor)]
        found = self._forms.get(form := tuple(key))
        if found is None:
            if len(self._forms) >= FORMS:  # The memory of a worker must not grow with the number of cases.
                return 0
            found = self._forms[form] = len(self.uses)
            self.uses.append(self._uses(attempt))
        return found

    def _uses(self, attempt: Attempt) -> tuple[Use, ...]:
        program, values = attempt.program, attempt.trace.values
        steps = program.steps
        found: dict[str, tuple[set[str], set[str]]] = {}
        for index, step in program.calls:
            # Findings name the operator of all overloads; coverage counts each of the dispatcher's.
            (operator,) = operators_of(steps, (index,))
            if not operator.startswith(_NAMESPACE) and not is_own(operator):
                continue
            arguments, dtypes = found.setdefault(operator, (set(), set()))
            arguments.update(self._arguments(step, steps, operator))
            seen = {_dtype(values[ref.index]) for ref in step_refs(step) if ref.index < len(values)} - {""}
            dtypes.update(seen or {_dtype(values[index]) if index < len(values) else ""} - {""})
        return tuple(Use(name, tuple(sorted(given)), tuple(sorted(of))) for name, (given, of) in found.items())

    def _arguments(self, step: Step, steps: Sequence[Step], operator: str) -> Sequence[str]:
        """Return the names of a call's arguments; for a module, those of its constructor."""
        try:
            if step.op != CALL_MODULE:
                return self._binder.names(step, operator)
            return self._binder.names(steps[step.receiver], operator) if step.receiver is not None else ()
        except UnsupportedError:
            return ()


def computing(program: Program) -> frozenset[int]:
    """Return the calls of operators that matter: for the outputs, a value that is written to, or a backward pass."""
    steps = program.steps
    used = follows_from(steps, len(steps) - 1)
    for index, step in program.calls:
        if index not in used and (step.target in PASSES or written_values(step, steps)):
            used |= follows_from(steps, index)
    return frozenset(index for index in used if not steps[index].in_setup and _computes(steps[index], steps))


def _computes(step: Step, steps: Sequence[Step]) -> bool:
    if not step.is_call or is_unpacking(step) or last_name(step.target) in _READS or is_passed_on(step, steps):
        return False
    operator = step_operator(step, steps)
    return operator.startswith(_NAMESPACE) or is_own(operator)


def operators_of(steps: Sequence[Step], indices: Iterable[int]) -> Iterator[str]:
    """Yield the operators of some steps, as coverage names them."""
    for index in indices:
        target = steps[index].target
        yield target if is_overload(target) else step_operator(steps[index], steps)


def placed_calls(steps: Sequence[Step], lay: Mapping[int, Distribution]) -> Iterator[tuple[str, str]]:
    """Yield each operator that a program calls, and how its tensor arguments lay on ranks.

    Args:
        steps: The program's steps.
        lay: How the value of each step lay, by index.
    """
    for step in steps:
        if not step.is_call or step.in_setup or is_unpacking(step):
            continue
        operator = step_operator(step, steps)
        placed = [str(lay[ref.index]) for ref in step_refs(step) if ref.index in lay]
        if placed and (operator.startswith(_NAMESPACE) or is_own(operator)):
            yield operator, "; ".join(placed)


def _dtype(value: object) -> str:
    return DTYPE_NAMES[value.dtype] if isinstance(value, torch.Tensor) else ""
