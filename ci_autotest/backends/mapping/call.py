"""Translate one call: rename, drop, fill in and adapt its arguments by its row of the table.

In a table with ``like_torch``, a row without ``to`` keeps the spelling and only drops and renames arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from ci_autotest.backends.mapping.argument_binding import Binder, is_same
from ci_autotest.backends.mapping.argument_names import OF_PYTHON
from ci_autotest.backends.mapping.program_writer import Writer, adapter_step, literal
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, GET_ATTR, Ref, Step, ref_to
from ci_autotest.program.random_calls import draws, may_be_quiet
from ci_autotest.program.written_values import is_in_place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.mapping.row import MappingRow
    from ci_autotest.backends.mapping.table import MappingTable
    from ci_autotest.program.ir import Argument

_NOTHING: Final[frozenset[str]] = frozenset()


class CallTranslator:
    """Translate calls by one framework's table."""

    def __init__(self, table: MappingTable) -> None:
        self._table = table
        self._binder = Binder()
        self._targets: dict[str, str] = {}

    def write(self, step: Step, operator: str, row: MappingRow, writer: Writer) -> int:
        """Write the framework's call, with the steps of its adapters around it; return the index of its value.

        Raises:
            UnsupportedError: An argument has no counterpart, or the framework has no in-place form.
        """
        given = self._binder.bound(step, operator)
        target = self._target(step, operator, row, given)
        if not target:
            self._drop(given, operator, row)
            return self.keep(step, operator, writer, row)
        is_random = _draws(step)
        if is_random and may_be_quiet(operator) and not row.draws:
            self._refuse_drawn(operator)
        given.pop("inplace", None)  # `_target` has already chosen the in-place function.
        self._drop(given, operator, row)
        # Frameworks have neither `out` nor `requires_grad`, so a row must say what becomes of them.
        for name in OF_PYTHON:
            if name in given and name not in row.rename and name not in row.adapt:
                self._refuse(operator, name, given[name], row)
        places = row.positional and row.positional[: _count(row.positional, given)]
        values = [self._positional(name, step, operator, row, given) for name in places]
        args = tuple(
            writer.adapted(step, row.adapt.get(name), value) for name, value in zip(places, values, strict=True)
        )
        args = writer.promoted(step, row.promote, args) if row.promote else args
        kwargs = {}
        for name, value in given.items():
            if name not in places:
                kwargs[row.rename.get(name, name)] = writer.adapted(step, row.adapt.get(name), value)
        named = {row.rename.get(name, name) for name in places}
        for name, value in row.fill.items():
            if name not in named:
                kwargs.setdefault(name, literal(value))
        seed = step.seed if is_random else None
        called = Step(CALL_FUNCTION, target, args, tuple(kwargs.items()), step.name, step.modes, seed, step.in_setup)
        found = writer.add(called)
        return writer.add(adapter_step(row.result, (ref_to(found),), step)) if row.result else found

    def keep(self, step: Step, operator: str, writer: Writer, row: MappingRow | None = None) -> int:
        """Write a call as the test spelled it, under the framework's name; return the index of its value.

        Required arguments become positional: frameworks keep torch's order more often than its names.

        Raises:
            UnsupportedError: The call draws random numbers.
        """
        if step.seed is not None:
            is_random = step.op != CALL_MODULE and _draws(step)
            if is_random and (operator not in self._table.same_generator or writer.is_narrow):
                self._refuse_drawn(operator)
            step = step if is_random else step._replace(seed=None)
        target = self._alike(step)
        if row is None and (not step.kwargs or step.op == CALL_MODULE or step.in_setup):
            return writer.keep(step if target == step.target else step._replace(target=target))
        dropped = frozenset(row.default) if row is not None else _NOTHING
        renamed = row.rename if row is not None else {}
        try:
            args, kwargs = self._binder.respelled(step, operator, dropped, renamed)
        except UnsupportedError:
            if row is not None:
                raise
            args, kwargs = step.args, step.kwargs  # Torch has no names for them, so they stay as the test wrote them.
        return writer.keep(step._replace(target=target, args=args, kwargs=kwargs))

    def _drop(self, given: dict[str, Argument], operator: str, row: MappingRow) -> None:
        """Drop arguments without counterpart if they have an allowed value, and refuse them otherwise."""
        for name, values in row.only.items():
            if name in given and not any(is_same(given[name], value) for value in values):
                self._refuse(operator, name, given[name], row)
        for name, allowed in row.default.items():
            if name in given and not is_same(given[name], allowed):
                self._refuse(operator, name, given[name], row)
            given.pop(name, None)

    def _alike(self, step: Step) -> str:
        target = step.target
        if step.op in {CALL_METHOD, GET_ATTR} or not target.startswith("torch."):
            return target
        found = self._targets.get(target)
        if found is None:
            found = self._targets[target] = f"{self._table.namespace}{target.removeprefix('torch')}"
        return found

    def _target(self, step: Step, operator: str, row: MappingRow, given: Mapping[str, Argument]) -> str:
        """Return the framework's function, the in-place one for an in-place spelling; empty to keep the target."""
        writes = is_in_place(step.target) or given.get("inplace") is True
        found = row.inplace if writes else row.to
        if not found and not self._table.like_torch:
            form = "in-place form" if writes else "form that is not in place"
            message = f"the table of {self._table.label} has no {form} of {operator}."
            raise UnsupportedError(message, operator)
        return found

    def _positional(
        self, name: str, step: Step, operator: str, row: MappingRow, given: Mapping[str, Argument]
    ) -> Argument:
        """Return the value of a positional argument: the call's, else the row's constant, else torch's default."""
        if name in given:
            return given[name]
        filled = row.rename.get(name, name)
        if filled in row.fill:
            return literal(row.fill[filled])
        # A later positional argument is given, so torch's default must be written out.
        defaults = self._binder.defaults(step, operator)
        if name not in defaults:
            message = f"{operator} is called without {name!r}, which {row.to} of {self._table.label} needs."
            raise UnsupportedError(message, operator, name)
        return literal(defaults[name])

    def _refuse_drawn(self, operator: str) -> NoReturn:
        message = f"{operator} draws random numbers, and {self._table.label} draws different ones from the same seed."
        raise UnsupportedError(message, operator)

    def _refuse(self, operator: str, name: str, value: Argument, row: MappingRow) -> NoReturn:
        shown = "a tensor" if isinstance(value, Ref) else repr(value)
        why = f": {row.reason}" if row.reason else ""
        message = f"{self._table.label} has no counterpart of argument {name!r} of {operator}, here {shown}{why}"
        raise UnsupportedError(message, operator, name)


def _count(positional: Sequence[str], given: Mapping[str, Argument]) -> int:
    """Return how many arguments become positional: all up to the last one that the call gives."""
    return 1 + max((place for place, name in enumerate(positional) if name in given), default=-1)


def _draws(step: Step) -> bool:
    """Whether a call has a seed and uses it."""
    return step.seed is not None and draws(step.target, step.args, dict(step.kwargs))
