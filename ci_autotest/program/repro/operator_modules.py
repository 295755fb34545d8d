"""What registers or defines the user's operators of a program: modules to import and libraries to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.errors import ProgramError
from ci_autotest.program.python_names import is_module, is_pythons
from ci_autotest.program.targets import OPS, is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Program, Recording


def operator_modules(program: Program) -> set[str]:
    """Return the modules that define the functions and classes of the user's in a program."""
    own = {step.target for step in program.steps if is_own(step.target) and not step.target.startswith(OPS)}
    return {target.rpartition(".")[0] for target in own}


def has_registered(program: Program) -> bool:
    """Whether a program calls an entry of torch.ops."""
    return any(step.target.startswith(OPS) for step in program.steps)


def imported_modules(note: Mapping[str, Any]) -> set[str]:
    """Return the modules with which a candidate registers operators.

    Raises:
        ProgramError: One is not a module's name.
    """
    names = _listed(note, "import")
    for name in names:
        if not is_module(name) or is_pythons(name):
            message = f"the note imports {name[:60]!r}: it is not a module of the user's and never printed as code."
            raise ProgramError(message)
    return set(names)


def loaded_libraries(note: Mapping[str, Any]) -> list[str]:
    """Return the libraries with which a candidate registers operators."""
    return _listed(note, "load")


def import_lines(recording: Recording) -> list[str]:
    """Return the lines that import and load what defines the operators of a program and of its candidate."""
    modules = operator_modules(recording.program) | imported_modules(recording.note)
    return [
        *(f"torch.ops.load_library({path!r})" for path in loaded_libraries(recording.note)),
        *(f"import {module}" for module in sorted(modules)),
    ]


def _listed(note: Mapping[str, Any], key: str) -> list[str]:
    found = note.get(key)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []
