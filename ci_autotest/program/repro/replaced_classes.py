"""Classes of modules that a candidate replaces, in a script: its setup constructs the module of either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import expression, literal, names, setup_lines, statement
from ci_autotest.program.edit import used_by
from ci_autotest.program.ir import CALL_METHOD, PLACEHOLDER
from ci_autotest.program.note import SubstituteNote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Step
    from ci_autotest.program.recording import Recording

#: The parameter that says for which side the setup runs.
IS_CANDIDATE: Final = "is_candidate"


def classes_of(recording: Recording) -> dict[str, str]:
    """Return the replacement of each class of modules that a program constructs."""
    made = {step.target for step in recording.program.setup}
    return {target: path for target, path in _side(recording).classes.items() if target in made}


def class_modules(recording: Recording) -> set[str]:
    """Return the modules that a script imports for them."""
    classes, state = classes_of(recording), _side(recording).state
    paths = {*classes.values(), *(state[target] for target in classes if target in state)}
    return {path.rpartition(".")[0] for path in paths}


def setup_of(recording: Recording) -> list[str]:
    """Return the statements of the setup; with replaced classes, they depend on ``IS_CANDIDATE``."""
    classes, program = classes_of(recording), recording.program
    if not classes:
        return setup_lines(program)
    loaders = _loaders(recording, classes)
    named = names(program)
    used = used_by(program.steps)

    def rename(target: str) -> str:
        return f"({classes[target]} if {IS_CANDIDATE} else {target})" if target in classes else target

    lines: list[str] = []
    for index, step in enumerate(program.setup):
        loaded = step.loaded_state
        loader = loaders.get(loaded[0]) if loaded is not None else None
        if loader is not None:
            lines += _loading(step, named, loader)
        elif step.op != PLACEHOLDER:
            is_bound = step.op != CALL_METHOD or index in used
            lines += statement(index, step, named, rename, is_bound=is_bound)
    return lines


def _loaders(recording: Recording, classes: Mapping[str, str]) -> dict[int, str]:
    state = _side(recording).state
    steps = enumerate(recording.program.setup)
    return {index: state[step.target] for index, step in steps if step.target in classes and step.target in state}


def _loading(step: Step, named: Sequence[str], loader: str) -> list[str]:
    module, state = (literal(argument, named) for argument in step.args[:2])
    return [
        f"if {IS_CANDIDATE}:",
        "    with torch.no_grad():",
        f"        {loader}({module}, {state})",
        "else:",
        f"    {expression(step, named)}",
    ]


def _side(recording: Recording) -> SubstituteNote:
    """Return what a program's candidate replaces; nothing if it is of another kind."""
    side = recording.note.side
    return side if isinstance(side, SubstituteNote) else SubstituteNote()
