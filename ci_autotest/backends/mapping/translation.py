"""Translate a program: each call by the row of its operator, its arguments by the framework's names.

What has no row, or an argument without counterpart, is refused with its name: the case is unsupported, and nothing that
differs by definition is ever held against a framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.backends.mapping.call import Answers
from ci_autotest.backends.mapping.module_lowering import has_modules, lowered
from ci_autotest.backends.mapping.program_writer import Writer
from ci_autotest.backends.mapping.table import ADAPTERS
from ci_autotest.backends.mapping.untranslatable import refuse_foreign, refuse_random_modules, refuse_refusals
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.hook_names import idle_hooks
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_MODULE,
    LOADS_STATE,
    OUTPUT,
    PLACEHOLDER,
    UNPACK,
    Program,
)
from ci_autotest.program.refusal import bare, bare_at_end, refused_as

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.mapping.table import Table
    from ci_autotest.program.ir import Step

#: Steps that every framework's own tensors answer, where its table does not say otherwise.
_OF_PYTHON: Final = frozenset({
    "operator.getitem", "operator.setitem", "builtins.len", "builtins.bool", "builtins.int", "builtins.float",
})  # fmt: skip
#: Attributes that every framework's tensors have under the same name.
_OF_TENSORS: Final = frozenset({"shape", "ndim", "dtype"})


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
        self.table = table
        self._answers = Answers(table)
        self._promotions = {f"{ADAPTERS}{row.promote}" for row in table.rows.values() if row.promote}

    def translated(self, program: Program, sources: Mapping[str, Any] | None = None) -> Translated:
        """Return a program in the framework's words.

        Args:
            program: As recorded. One that ends with a step that the reference refused ends there with an error of its
                own: in other words it may take several steps.
            sources: Data of each placeholder by key; read where a module is lowered, zeros without.

        Raises:
            UnsupportedError: An operator, an argument, a mode or a module has no counterpart.
        """
        program = bare_at_end(program)
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
        setup = 0
        idle = idle_hooks(steps)
        for index, step in enumerate(steps):
            if index in idle:
                writer.give(-1)
            elif step.modes and refused_as(step) is not None:
                writer.give(self._write_refused(step, steps, writer))
            else:
                writer.give(self._write(step, steps, writer))
            if step.in_setup:
                setup = len(writer.steps)
        done = tuple(writer.steps)
        return Translated(Program(done[:setup], done[setup:], program.cotangents), writer.places)

    def _write_refused(self, step: Step, steps: tuple[Step, ...], writer: Writer) -> int:
        """Write a step that is to be refused, and after which the body goes on; return where its value is."""
        before = len(writer.steps)
        found = self._write(bare(step), steps, writer)
        # A cast of the operands is refused by no framework: it is the call after it that is to be refused.
        if sum(written.target not in self._promotions for written in writer.steps[before:]) != 1:
            refuse_refusals(Program((), (step,)), self.table)
        writer.steps[found] = writer.steps[found]._replace(modes=step.modes)
        return found

    def _write(self, step: Step, steps: tuple[Step, ...], writer: Writer) -> int:
        """Write what stands for a step; return where its value is."""
        if step.op in {PLACEHOLDER, OUTPUT} or step.target == UNPACK:
            return writer.keep(step)
        if step.modes:
            refuse_foreign(step, self.table)
        if step.in_setup and step.target == LOADS_STATE:
            # What the framework's module has of it: the step is the harness's, and what is left out is told.
            return writer.keep(step._replace(kwargs=(("strict", False),)))
        operator = self._operator(step, steps)
        row = self.table.rows.get(operator)
        if row is not None and row.unsupported:
            message = f"{self.table.label} has no counterpart of {operator}: {row.unsupported}"
            raise UnsupportedError(message, operator)
        if row is not None and step.op != CALL_MODULE:
            return self._answers.write(step, operator, row, writer)
        if step.target in _OF_PYTHON or (step.target == "builtins.getattr" and step.args[1] in _OF_TENSORS):
            return writer.keep(step)
        if self.table.like_torch:
            return self._answers.keep(step, operator, writer)
        message = f"the table of {self.table.label} has no row for {operator}."
        raise UnsupportedError(message, operator)

    def _operator(self, step: Step, steps: tuple[Step, ...]) -> str:
        if step.in_setup and step.op == CALL_FUNCTION and step.target in self.table.rows:
            return step.target  # a module class, which has a row of its own
        return step_operator(step, steps)

    def _is_answered(self, operator: str) -> bool:
        row = self.table.rows.get(operator)
        return row is not None and not row.unsupported


def translated(program: Program, table: Table, sources: Mapping[str, Any] | None = None) -> Translated:
    """Return one program in a framework's words; a ``Translator`` is faster for many."""
    return Translator(table).translated(program, sources)
