"""Translate a program: each call by the row of its operator, with the framework's names for its arguments.

An operator without a row, or an argument without a counterpart, makes the case unsupported and is named, so that a
framework is never blamed for what differs by definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.backends.mapping.call import CallTranslator
from ci_autotest.backends.mapping.module_lowering import has_modules, lowered
from ci_autotest.backends.mapping.program_writer import Writer
from ci_autotest.backends.mapping.table import ADAPTERS
from ci_autotest.backends.mapping.untranslatable import (
    refuse_float8,
    refuse_foreign,
    refuse_random_modules,
    refuse_refusals,
)
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.hook_names import idle_hooks
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    EXPECT,
    LOADS_STATE,
    OUTPUT,
    PLACEHOLDER,
    UNPACK,
    Program,
)
from ci_autotest.program.refusal import bare, bare_at_end, refused_as

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.mapping.table import MappingTable
    from ci_autotest.program.ir import Step

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
        self._calls = CallTranslator(table)
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
            refuse_float8(program, self.table)
        if self.table.like_torch:
            refuse_random_modules(program, self.table)
        elif has_modules(program):
            refuse_refusals(program, self.table)
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
            refuse_refusals(Program((), (step,)), self.table)
        writer.steps[found] = writer.steps[found]._replace(modes=step.modes)
        return found

    def _write(self, step: Step, steps: tuple[Step, ...], writer: Writer) -> int:
        """Write the translation of a step; return the index of its value."""
        if step.op in {PLACEHOLDER, OUTPUT} or step.target == UNPACK:
            return writer.keep(step)
        if step.target == EXPECT:  # A candidate's own result is compared.
            step = step._replace(op=CALL_METHOD, target="clone", args=step.args[:1])
        if step.modes:
            refuse_foreign(step, self.table)
        if step.in_setup and step.target == LOADS_STATE:
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
