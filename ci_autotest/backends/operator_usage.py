"""Count which operators a program uses, with which arguments and dtypes, for the coverage report.

It is worked out once for each form that a program takes; a case costs the look-up of its form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.backends.mapping.argument_binding import Binder
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import CALL_MODULE, OUTPUT, PLACEHOLDER, Ref, step_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Step

#: Forms that are told apart; from then on a program of a new form counts as none, and coverage says less than it could.
FORMS: Final = 1 << 16
#: Steps whose arguments say nothing that the dtypes of the values do not.
_SILENT: Final = frozenset({PLACEHOLDER, OUTPUT})
_NAMESPACE: Final = "torch."


class Use(NamedTuple):
    """Say how a program calls one operator.

    Attributes:
        operator: Its canonical name.
        arguments: Torch's names of the arguments that are given, whatever their values.
        dtypes: Of the tensors that it is given, or of its result where it is given none.
    """

    operator: str
    arguments: tuple[str, ...]
    dtypes: tuple[str, ...]


class OperatorUsage:
    """Number the forms of programs, and know what each of them calls."""

    def __init__(self) -> None:
        """Begin with no form known but that of a program that calls nothing, which is form 0."""
        self._forms: dict[Any, int] = {}
        self._binder = Binder()
        self.uses: list[tuple[Use, ...]] = [()]

    def form(self, attempt: Attempt) -> int:
        """Return the number of the form of an attempt's program."""
        # What each step calls, the types of its arguments, and every dtype: it says which names the arguments have.
        key: list[Any] = []
        for op, target, args, kwargs, *_ in attempt.program.steps:
            if op in _SILENT:
                continue
            key.append(target)
            key += map(type, args)
            if kwargs:
                key += [name for name, _ in kwargs]
        key += [value.dtype for value in attempt.trace.values if isinstance(value, torch.Tensor)]
        found = self._forms.get(form := tuple(key))
        if found is None:
            if len(self._forms) >= FORMS:
                return 0
            found = self._forms[form] = len(self.uses)
            self.uses.append(self._uses(attempt))
        return found

    def _uses(self, attempt: Attempt) -> tuple[Use, ...]:
        program, values = attempt.program, attempt.trace.values
        steps = program.steps
        found: dict[str, tuple[set[str], set[str]]] = {}
        for index, step in program.calls:
            operator = step_operator(step, steps)
            if not operator.startswith(_NAMESPACE):
                continue
            arguments, dtypes = found.setdefault(operator, (set(), set()))
            arguments.update(self._arguments(step, steps, operator))
            seen = {_dtype(values[ref.index]) for ref in step_refs(step) if ref.index < len(values)} - {""}
            dtypes.update(seen or {_dtype(values[index]) if index < len(values) else ""} - {""})
        return tuple(Use(name, tuple(sorted(given)), tuple(sorted(of))) for name, (given, of) in found.items())

    def _arguments(self, step: Step, steps: Sequence[Step], operator: str) -> Sequence[str]:
        """Return the names of a call's arguments; of a module those that it was constructed with too."""
        try:
            if step.op != CALL_MODULE:
                return self._binder.names(step, operator)
            receiver = step.args[0]
            made = steps[receiver.index] if isinstance(receiver, Ref) else step
            return self._binder.names(made, operator) if made is not step else ()
        except UnsupportedError:
            return ()


def _dtype(value: object) -> str:
    return str(value.dtype).removeprefix(_NAMESPACE) if isinstance(value, torch.Tensor) else ""
