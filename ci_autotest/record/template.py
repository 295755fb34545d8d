"""Templates: what a plain body draws and calls, kept from one attempt, so that others are drawn without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ci_autotest.backends.sweep import is_plain_call
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, is_unpacking
from ci_autotest.record.generators import Either, Generator
from ci_autotest.record.recorder import Recorder
from ci_autotest.record.sizing import sizing_of
from ci_autotest.record.values import Value

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Step
    from ci_autotest.record.function import Function
    from ci_autotest.record.plainness import Plain
    from ci_autotest.record.sizing import Input
    from ci_autotest.record.tensors import Asked


class Call(NamedTuple):
    """Hold a call as the body made it.

    Attributes:
        callee: The function, where it is one of torch's.
        name: Else the operator's or method's.
        args: With generators as they are, and recorded values; of a method without the receiver.
        kwargs: Likewise.
    """

    callee: Function | None
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def varies(self) -> bool:
        """Whether an argument is drawn."""
        return any(map(_is_drawn, (*self.args, *self.kwargs.values())))


@dataclass(frozen=True, eq=False)
class Template:
    """Hold what a plain body does; each is another one.

    Attributes:
        steps: As recorded once.
        drawn: By index of an input how it is drawn, by index of a call with drawn arguments the call; in order.
        parts: Number of values in what a step gave, by its index, where it gave several.
        proof: That the body is plain.
        inputs: How inputs are drawn side by side; ``None`` where they, or an argument, are drawn in another way.
    """

    steps: tuple[Step, ...]
    drawn: dict[int, Asked | Call]
    parts: dict[int, int]
    proof: Plain
    inputs: tuple[Input, ...] | None


class Noting(Recorder):
    """A recorder that notes how the body called it."""

    __slots__ = ()

    def call_function(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Record a call, and note it."""
        self._note(Call(function, "", args, kwargs))
        return Recorder.call_function(self, function, args, kwargs)

    def call_python(self, target: str, call: Any, args: tuple[Any, ...], name: str) -> Any:  # noqa: ANN401
        """Record one of Python's operators, and note it."""
        self._note(Call(None, target, args, {}))
        return Recorder.call_python(self, target, call, args, name)

    def call_method(self, receiver: Value, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Record a method, and note it."""
        self._note(Call(None, target, args, kwargs))
        return Recorder.call_method(self, receiver, target, args, kwargs)

    def _note(self, call: Call) -> None:
        assert self.noted is not None  # noqa: S101 - set for this class
        self.noted[len(self.steps)] = call


def template_of(attempt: Attempt, noted: dict[int, Any], proof: Plain) -> Template | None:
    """Return the template of a body; ``None`` where a step is not what it would be in any other case.

    Args:
        attempt: One that was accepted.
        noted: How the body called the recorder, by the index of the step.
        proof: That the body is plain.
    """
    program, values = attempt.program, attempt.trace.values
    if program.setup:
        return None
    drawn: dict[int, Asked | Call] = {}
    for index, step in enumerate(program.body):
        note = noted.get(index)
        if step.op == OUTPUT or (is_unpacking(step) and note is None and _is_kept(values[index])):
            continue
        if step.op == PLACEHOLDER:
            if not isinstance(note, tuple) or isinstance(note, Call):
                return None
            drawn[index] = note
        elif (
            not isinstance(note, Call)
            or not is_plain_call(step)
            or not _is_kept(values[index])
            or any(map(_holds_values, (*note.args, *note.kwargs.values())))
        ):
            return None
        elif note.varies:
            drawn[index] = note
    parts = {index: len(value) for index, value in enumerate(values) if isinstance(value, tuple | list)}
    asked = [what for what in drawn.values() if not isinstance(what, Call)]
    inputs = sizing_of(asked) if len(asked) == len(drawn) else None
    return Template(program.body, drawn, parts, proof, inputs)


def _is_kept(value: object) -> bool:
    """Whether a body gets recorded values for what a step gave: of anything else it may make what it likes."""
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return all(map(_is_kept, value))
    return value is None or isinstance(value, torch.Tensor)


def _is_drawn(argument: object) -> bool:
    if isinstance(argument, tuple | list):
        return any(map(_is_drawn, argument))
    if isinstance(argument, slice):
        return any(map(_is_drawn, (argument.start, argument.stop, argument.step)))
    if isinstance(argument, dict):
        return any(map(_is_drawn, argument.values()))
    return isinstance(argument, Generator)


def _holds_values(argument: object) -> bool:
    """Whether a generator chooses between values of the body's run: it is the body's alone."""
    if isinstance(argument, Either):
        return any(isinstance(item, Value) or _holds_values(item) for item in argument.alternatives)
    return isinstance(argument, tuple | list) and any(map(_holds_values, argument))
