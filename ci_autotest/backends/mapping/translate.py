"""A program in a framework's words: each call by the row of its operator, its arguments by the names that it has there.

What has no row, or an argument without counterpart, is refused with its name: the case is unsupported, and nothing that
differs by definition is ever held against a framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.backends.mapping.binding import Binder, is_same
from ci_autotest.backends.mapping.chance import is_drawn
from ci_autotest.backends.mapping.lowering import has_modules, lowered
from ci_autotest.backends.mapping.refusing import refuse_foreign, refuse_random_modules
from ci_autotest.backends.mapping.signatures import OF_PYTHON
from ci_autotest.backends.mapping.table import ADAPTERS
from ci_autotest.backends.operators import step_operator
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    GET_ATTR,
    OUTPUT,
    PLACEHOLDER,
    UNPACK,
    List,
    Program,
    Ref,
    Step,
    ref_to,
    renumbered,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.mapping.table import Row, Table
    from ci_autotest.program.ir import Argument

#: Steps that every framework's own tensors answer, where its table does not say otherwise.
_OF_PYTHON: Final = frozenset({
    UNPACK, "operator.getitem", "operator.setitem", "builtins.len", "builtins.bool", "builtins.int", "builtins.float",
})  # fmt: skip
#: Attributes that every framework's tensors have under the same name.
_OF_TENSORS: Final = frozenset({"shape", "ndim"})
_PLAIN: Final = frozenset({int, float, bool, str, type(None), complex})


class Translated(NamedTuple):
    """Hold a translated program and where its values are.

    Attributes:
        program: Steps whose targets are the framework's. Modules of a framework that is not like torch are lowered:
            their parameters and buffers are placeholders of the body, of the same keys.
        moved: Where the value of each step of the original is, by its index; -1 where it has no counterpart.
        parameters: Placeholder of each parameter of a lowered module, by the index of the original step that
            constructed the module and the parameter's name.
        buffers: The same for buffers, without counters of batches.
    """

    program: Program
    moved: Sequence[int]
    parameters: Mapping[tuple[int, str], int] = {}
    buffers: Mapping[tuple[int, str], int] = {}


class Translator:
    """Translate programs by one table, and remember how each spelling is bound.

    Args:
        table: A framework's rows.
    """

    def __init__(self, table: Table) -> None:
        """Begin with no spelling known."""
        self.table = table
        self._binder = Binder()
        self._alike: dict[str, str] = {}

    def translated(self, program: Program, sources: Mapping[str, Any] | None = None) -> Translated:
        """Return a program in the framework's words.

        Args:
            program: As recorded; it may end with a step that the reference refused, without output.
            sources: Data of each placeholder by key; read where a module is lowered, zeros without.

        Raises:
            UnsupportedError: An operator, an argument, a mode or a module has no counterpart.
        """
        if self.table.like_torch:
            refuse_random_modules(program, self.table)
        elif has_modules(program):
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
        writer = _Writer(self.table)
        places: list[int] = []
        setup = 0
        for step in steps:
            self._write(step, steps, writer, places)
            if step.in_setup:
                setup = len(writer.steps)
        done = tuple(writer.steps)
        return Translated(Program(done[:setup], done[setup:], program.cotangents), places)

    def _write(self, step: Step, steps: tuple[Step, ...], writer: _Writer, places: list[int]) -> None:
        """Write what stands for a step, and note where its value is."""
        if step.op in {PLACEHOLDER, OUTPUT}:
            places.append(writer.keep(step, step.target, places))
            return
        if step.modes:
            refuse_foreign(step, self.table)
        is_own = step.target in _OF_PYTHON
        operator = step.target if step.target == UNPACK else self._operator(step, steps)
        row = self.table.rows.get(operator)
        if row is not None and row.unsupported:
            message = f"{self.table.label} has no counterpart of {operator}: {row.unsupported}"
            raise UnsupportedError(message, operator)
        if row is not None and step.op != CALL_MODULE:
            places.append(self._call(step, operator, row, writer, places))
        elif is_own:
            places.append(writer.keep(step, step.target, places))
        elif self.table.like_torch:
            self._refuse_drawn(step, operator)
            places.append(writer.keep(step._replace(seed=None), self._like(step), places))
        elif step.target == "builtins.getattr" and step.args[1] in _OF_TENSORS:
            places.append(writer.keep(step, step.target, places))
        else:
            message = f"the table of {self.table.label} has no row for {operator}."
            raise UnsupportedError(message, operator)

    def _operator(self, step: Step, steps: tuple[Step, ...]) -> str:
        operator = step_operator(step, steps)
        if step.op == CALL_FUNCTION and step.in_setup and step.target in self.table.rows:
            return step.target  # a module class, which has a row of its own
        return operator

    def _is_answered(self, operator: str) -> bool:
        row = self.table.rows.get(operator)
        return row is not None and not row.unsupported

    def _like(self, step: Step) -> str:
        """Return the target of a step whose framework has torch's names."""
        target = step.target
        if step.op in {CALL_METHOD, GET_ATTR} or not target.startswith("torch."):
            return target
        found = self._alike.get(target)
        if found is None:
            found = self._alike[target] = f"{self.table.namespace}{target.removeprefix('torch')}"
        return found

    def _refuse_drawn(self, step: Step, operator: str) -> None:
        if step.seed is None or step.op == CALL_MODULE:
            return
        if is_drawn(operator, self._binder.bound(step, operator)):
            message = (
                f"{operator} draws from the generator of the framework, and that of {self.table.label} gives other "
                "numbers."
            )
            raise UnsupportedError(message, operator)

    def _call(self, step: Step, operator: str, row: Row, writer: _Writer, places: Sequence[int]) -> int:
        """Write the call that a row says, with the steps of its adapters around it; return where its value is."""
        given = self._binder.bound(step, operator)
        target = self._target(step, operator, row, given)
        given.pop("inplace", None)
        for name, allowed in row.default.items():
            if name in given and not is_same(given[name], allowed):
                self._refuse_argument(operator, name, given[name], row)
            given.pop(name, None)
        for name in OF_PYTHON:
            if name in given and name not in row.rename and name not in row.adapt:
                self._refuse_argument(operator, name, given[name], row)
        named_args = [self._positional(name, step, operator, row, given) for name in _needed(row.positional, given)]
        args = [writer.adapted(step, row.adapt.get(name), value, places) for name, value in named_args]
        kwargs = []
        for name, value in given.items():
            if name not in row.positional:
                adapted = writer.adapted(step, row.adapt.get(name), value, places)
                kwargs.append((row.rename.get(name, name), adapted))
        named = {name for name, _ in kwargs} | {row.rename.get(name, name) for name, _ in named_args}
        kwargs += [(name, _literal(value)) for name, value in row.fill.items() if name not in named]
        seed = step.seed
        found = writer.add(
            Step(CALL_FUNCTION, target, tuple(args), tuple(kwargs), step.name, step.modes, seed, step.in_setup)
        )
        if not row.result:
            return found
        return writer.add(_adapter(row.result, ref_to(found), step))

    def _target(self, step: Step, operator: str, row: Row, given: Mapping[str, Argument]) -> str:
        """Return the function that answers: another one where the spelling writes to its input."""
        writes = writes_to_input(step) or given.get("inplace") is True
        found = row.inplace if writes else row.to
        if not found:
            how = "that writes to its input" if writes else "that does not write to its input"
            message = f"the table of {self.table.label} has no form of {operator} {how}."
            raise UnsupportedError(message, operator)
        return found

    def _positional(
        self, name: str, step: Step, operator: str, row: Row, given: Mapping[str, Argument]
    ) -> tuple[str, Argument]:
        """Return an argument that goes by position: what the call gives, else torch's default."""
        if name in given:
            return name, given[name]
        defaults = self._binder.defaults(step, operator)
        filled = row.rename.get(name, name)
        if filled in row.fill:
            return name, _literal(row.fill[filled])
        if name not in defaults:
            message = f"{operator} is called without {name!r}, which {row.to} of {self.table.label} needs."
            raise UnsupportedError(message, operator, name)
        return name, _literal(defaults[name])

    def _refuse_argument(self, operator: str, name: str, value: Argument, row: Row) -> None:
        shown = "a tensor" if isinstance(value, Ref) else repr(value)
        why = f": {row.reason}" if row.reason else ""
        message = f"{self.table.label} has no counterpart of argument {name!r} of {operator}, here {shown}{why}"
        raise UnsupportedError(message, operator, name)


def translated(program: Program, table: Table, sources: Mapping[str, Any] | None = None) -> Translated:
    """Return one program in a framework's words; a ``Translator`` is faster for many."""
    return Translator(table).translated(program, sources)


class _Writer:
    """Collect the steps of a translated program."""

    def __init__(self, table: Table) -> None:
        self.steps: list[Step] = []
        self._table = table

    def add(self, step: Step) -> int:
        """Append a step and return its index."""
        self.steps.append(step)
        return len(self.steps) - 1

    def keep(self, step: Step, target: str, places: Sequence[int]) -> int:
        """Append a step with another target, its references moved."""
        args = tuple(self.moved(argument, places) for argument in step.args)
        kwargs = tuple((key, self.moved(value, places)) for key, value in step.kwargs)
        return self.add(step._replace(target=target, args=args, kwargs=kwargs))

    def adapted(self, step: Step, adapter: str | None, value: Argument, places: Sequence[int]) -> Argument:
        """Return an argument, its references moved, behind the step of its adapter where it has one."""
        found = self.moved(value, places)
        return found if adapter is None else ref_to(self.add(_adapter(adapter, found, step)))

    def moved(self, argument: Argument, places: Sequence[int]) -> Argument:
        """Return an argument with its references to the translated steps."""
        if type(argument) is Ref:
            return ref_to(places[argument.index])
        if type(argument) in _PLAIN:
            return argument
        return renumbered(argument, dict(enumerate(places)))


def writes_to_input(step: Step) -> bool:
    """Whether a call is spelled as one that writes to its first argument."""
    name = step.target.rpartition(".")[2]
    if step.target.startswith("operator."):
        return name.startswith("i") and name not in {"invert"}
    if name.startswith("__"):
        return name.startswith("__i") and name != "__invert__"
    return name.endswith("_")


def _needed(positional: Sequence[str], given: Mapping[str, Argument]) -> Sequence[str]:
    """Return the names that go by position, up to the last one that the call gives."""
    last = max((i for i, name in enumerate(positional) if name in given), default=-1)
    return positional[: last + 1]


def _adapter(name: str, value: Argument, step: Step) -> Step:
    return Step(CALL_FUNCTION, f"{ADAPTERS}{name}", (value,), (), step.name, step.modes, None, step.in_setup)


def _literal(value: Any) -> Argument:  # noqa: ANN401 - what YAML or a signature holds
    """Return a constant of a table, or torch's default, as an argument."""
    if isinstance(value, list):
        return List(tuple(map(_literal, value)))
    return value  # type: ignore[no-any-return]
