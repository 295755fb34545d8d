"""Translate a program: each call by the row of its operator, with the framework's names for its arguments.

An operator without a row, or an argument without a counterpart, makes the case unsupported and is named, so that a
framework is never blamed for what differs by definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from ci_autotest.backends.framework.mapping.module_lowering import has_modules, lowered
from ci_autotest.backends.framework.mapping.program_writer import Writer, adapter_step, literal
from ci_autotest.backends.framework.mapping.table import ADAPTERS
from ci_autotest.backends.operators.argument_binding import OF_PYTHON, Binder, is_same
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.hook_names import idle_hooks
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    EXPECT,
    GET_ATTR,
    HOOK,
    REGISTERS,
    UNPACK,
    Program,
    Ref,
    Step,
    autocast_dtype,
    ref_to,
)
from ci_autotest.program.random_calls import drawing_modules, draws, may_be_quiet
from ci_autotest.program.refusal import bare, bare_at_end, refusals, refused_as
from ci_autotest.program.written_values import is_in_place
from ci_autotest.values.dtypes import FLOAT8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.framework.mapping.table import MappingRow, MappingTable
    from ci_autotest.program.ir import Argument


#: Targets that every framework's tensors support under the same name, unless the table has a row.
_OF_PYTHON: Final = frozenset({
    "operator.getitem", "operator.setitem", "builtins.len", "builtins.bool", "builtins.int", "builtins.float",
})  # fmt: skip
#: Attributes that every framework's tensors have under the same name.
_OF_TENSORS: Final = frozenset({"shape", "ndim", "dtype"})


class Translated(NamedTuple):
    """A translated program, and the places of its values.

    Attributes:
        program: Steps whose targets are the framework's. For a framework that is not like torch, modules are lowered:
            their parameters and buffers are placeholders of the body, with the same keys.
        moved: Index of the value of each step of the original; -1 for a value without counterpart.
        parameters: Placeholder of each parameter of a lowered module, by the index of the original step that
            constructed the module and the parameter's name.
        buffers: The same for buffers, except ``num_batches_tracked``.
    """

    program: Program
    moved: Sequence[int]
    parameters: Mapping[tuple[int, str], int] = {}
    buffers: Mapping[tuple[int, str], int] = {}


class Translator:
    """Translate programs by one table, and cache how each spelling is bound.

    Args:
        table: Of the framework.
        takes_float8: Whether the host is this torch, and takes tensors of 8 bits.
    """

    def __init__(self, table: MappingTable, *, takes_float8: bool = False) -> None:
        self.table = table
        self._takes_float8 = takes_float8
        self._calls = _CallTranslator(table)
        self._promotions = {f"{ADAPTERS}{row.promote}" for row in table.rows.values() if row.promote}

    def translated(self, program: Program, sources: Mapping[str, Any] | None = None) -> Translated:
        """Return a program whose calls are the framework's.

        Args:
            program: As recorded. If it ends with a step that the reference refused, the translation ends there with an
                error of its own, because it may take several steps.
            sources: Data of each placeholder by key, for lowering modules; zeros if omitted.

        Raises:
            UnsupportedError: An operator, an argument, a mode or a module has no counterpart.
        """
        program = bare_at_end(program)
        if not self._takes_float8:
            _refuse_float8(program, self.table)
        if self.table.like_torch:
            _refuse_random_modules(program, self.table)
        elif has_modules(program):
            _refuse_refusals(program, self.table)
            whole = lowered(program, self._is_answered, sources)
            found = self._mapped(whole.program)
            places = found.moved
            return Translated(
                found.program,
                [places[i] if i >= 0 else -1 for i in whole.moved],
                {key: places[i] for key, i in whole.parameters.items()},
                {key: places[i] for key, i in whole.buffers.items()},
            )
        return self._mapped(program)

    def _mapped(self, program: Program) -> Translated:
        steps = program.steps
        writer = Writer(steps)
        idle = idle_hooks(steps)
        for index, step in enumerate(steps):
            # A hook that changes nothing needs no counterpart, so its steps are left out.
            if index in idle:
                writer.give(-1)
            elif step.modes and refused_as(step) is not None:
                writer.give(self._write_refused(step, steps, writer))
            else:
                writer.give(self._write(step, steps, writer))
        return Translated(program.with_steps(writer.steps), writer.places)

    def _write_refused(self, step: Step, steps: tuple[Step, ...], writer: Writer) -> int:
        """Write a step with an expected refusal after which the body goes on; return the index of its value."""
        before = len(writer.steps)
        found = self._write(bare(step), steps, writer)
        # A cast of the operands is refused by no framework: it is the call after it that is to be refused.
        if sum(written.target not in self._promotions for written in writer.steps[before:]) != 1:
            _refuse_refusals(Program((), (step,)), self.table)
        writer.steps[found] = writer.steps[found]._replace(modes=step.modes)
        return found

    def _write(self, step: Step, steps: tuple[Step, ...], writer: Writer) -> int:
        """Write the translation of a step; return the index of its value."""
        if not step.is_call or step.target == UNPACK:
            return writer.keep(step)
        if step.target == EXPECT:  # A candidate's own result is compared.
            step = step._replace(op=CALL_METHOD, target="clone", args=step.args[:1])
        if step.modes:
            _refuse_foreign(step, self.table)
        if step.loaded_state is not None:
            # The framework's module may lack parts of the state. The recorder added this step, not the test, so it
            # loads what the module has, and the host reports what was left out.
            return writer.keep(step._replace(kwargs=(("strict", False),)))
        operator = self._operator(step, steps)
        row = self.table.rows.get(operator)
        if row is not None and row.unsupported:
            message = f"{self.table.label} has no counterpart of {operator}: {row.unsupported}"
            raise UnsupportedError(message, operator)
        if row is not None and step.op != CALL_MODULE:
            return self._calls.write(step, operator, row, writer)
        if step.target in _OF_PYTHON or (step.target == "builtins.getattr" and step.args[1] in _OF_TENSORS):
            return writer.keep(step)
        if self.table.like_torch:
            return self._calls.keep(step, operator, writer)
        message = f"the table of {self.table.label} has no row for {operator}."
        raise UnsupportedError(message, operator)

    def _operator(self, step: Step, steps: tuple[Step, ...]) -> str:
        if step.in_setup and step.op == CALL_FUNCTION and step.target in self.table.rows:
            return step.target  # A module class can have its own row.
        return step_operator(step, steps)

    def _is_answered(self, operator: str) -> bool:
        row = self.table.rows.get(operator)
        return row is not None and not row.unsupported


def translated(program: Program, table: MappingTable, sources: Mapping[str, Any] | None = None) -> Translated:
    """Return the translation of one program; for many programs, a ``Translator`` is faster because it caches."""
    return Translator(table).translated(program, sources)


# Translate one call: rename, drop, fill in and adapt its arguments by its row of the table.
#
# In a table with ``like_torch``, a row without ``to`` keeps the spelling and only drops and renames arguments.


_NOTHING: Final[frozenset[str]] = frozenset()


class _CallTranslator:
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


# Refuse what no table can translate: hooks, autocast, and modules that draw random numbers.


def _refuse_foreign(step: Step, table: MappingTable) -> None:
    """Refuse a step in a mode that means something else in another framework.

    Raises:
        UnsupportedError: The step belongs to a hook, or runs under autocast in a framework that is not like torch.
    """
    if HOOK[0] in step.modes or REGISTERS[0] in step.modes:
        message = f"hooks on gradients are not translated to {table.label}."
        raise UnsupportedError(message, "torch.Tensor.register_hook")
    # Frameworks cast the inputs of different operators under autocast, so results would differ by definition.
    if not table.like_torch and any(autocast_dtype(mode) for mode in step.modes):
        message = f"autocast is not translated to {table.label}, whose own casts the inputs of other operators."
        raise UnsupportedError(message, "torch.autocast")


def _refuse_float8(program: Program, table: MappingTable) -> None:
    """Refuse a program with an input of 8 bits, which few frameworks have and NumPy cannot hold.

    Raises:
        UnsupportedError: The program has such an input.
    """
    for step in program.steps:
        spec = step.spec
        if spec is not None and spec.dtype in FLOAT8:
            message = f"tensors of {spec.dtype} are not passed to {table.label or 'another interpreter'}."
            raise UnsupportedError(message, "torch.Tensor.to")


def _refuse_refusals(program: Program, table: MappingTable) -> None:
    """Refuse a program whose body goes on after an expected refusal: its translation takes several steps.

    Raises:
        UnsupportedError: The program has such a step.
    """
    for index in refusals(program.steps):
        message = f"a body that goes on after an expected refusal is not translated to several steps of {table.label}."
        raise UnsupportedError(message, program.steps[index].target)


def _refuse_random_modules(program: Program, table: MappingTable) -> None:
    """Refuse a program with a module that draws random numbers in its forward.

    Raises:
        UnsupportedError: A called module, or a part of it, draws random numbers in its mode.
    """
    for index in sorted(drawing_modules(program)):
        target = program.steps[index].target
        message = (
            f"{target} draws random numbers in training, and {table.label} draws different ones from the same seed."
        )
        raise UnsupportedError(message, target)
