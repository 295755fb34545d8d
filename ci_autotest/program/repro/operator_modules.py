"""What registers or defines the user's operators of a program: modules to import and libraries to load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.program.targets import OPS, is_own

if TYPE_CHECKING:
    from ci_autotest.program.ir import Program
    from ci_autotest.program.recording import Recording


def operator_modules(program: Program) -> set[str]:
    """Return the modules that define the functions and classes of the user's in a program."""
    own = {step.target for step in program.steps if is_own(step.target) and not step.target.startswith(OPS)}
    return {target.rpartition(".")[0] for target in own}


def import_lines(recording: Recording) -> list[str]:
    """Return the lines that import and load what defines the operators of a program and of its candidate."""
    modules = operator_modules(recording.program) | {*recording.note.side.imports}
    return [
        *(f"torch.ops.load_library({path!r})" for path in recording.note.side.load),
        *(f"import {module}" for module in sorted(modules)),
    ]
