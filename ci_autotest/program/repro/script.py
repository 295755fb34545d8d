"""The one builder of scripts: the program, the values that it carries, and the functions that it calls."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.program.function_source import FunctionLibrary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

_FIXED: Final = '"fixed: nothing differs from the reference any more"'
_SAID: Final = f'print("misaligned: the candidate is not fixed" if status else {_FIXED})'


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The parts of a script, in their order.

    Attributes:
        modules: Dotted paths of the library's modules; of two that have a name, the first counts.
        first: Text that runs before anything is imported, or nothing.
        sides: Functions of the program: its inputs and its sides.
        values: What the script carries.
        between: Definitions that the sides use, and that are not of the library.
        taken: Names of the user's modules, which functions of the library cannot have.
        run: The function that runs a side, or a line above what compares.
        end: The lines that run the script.
    """

    modules: Sequence[str]
    sides: Sequence[str]
    values: str
    run: str
    end: str
    between: Sequence[str] = ()
    taken: Collection[str] = ()
    first: str = ""

    def text(self, head: Callable[[set[str], Sequence[str]], str]) -> str:
        """Return the script: what a maintainer reads stands above what compares.

        Args:
            head: Returns the text above the program, of the statements that import what the library needs, and of the
                definitions that the first lines use.
        """
        library = FunctionLibrary(self.modules)
        first = library.used_by(self.first)
        carried = [*library.used_by(self.values), self.values]
        sides = library.used_by("\n".join(self.sides), self.taken)
        runs = [*sides, *library.used_by(self.run), self.run, *library.used_by(self.end), self.end]
        clashes = "|".join(name for name in library.taken if name in self.taken)
        if clashes:  # A name before a dot is the module's.
            carried, runs = (
                [re.sub(rf"\b({clashes})\b(?!\.)", r"\1_0", text) for text in part] for part in (carried, runs)
            )
        below = [*self.sides, *carried, *self.between, *runs]
        blocks = [head(library.imports, first), *below]
        return "\n\n\n".join(text.strip("\n") for text in blocks if text) + "\n"


def of_library(*names: str) -> list[str]:
    """Return the dotted paths of modules of functions for scripts."""
    return [f"ci_autotest.repro_functions.{name}" for name in names]


def standard(imports: Iterable[str]) -> set[str]:
    """Return the statements that import of the standard library."""
    return {line for line in imports if line.split()[1].partition(".")[0] in sys.stdlib_module_names}


def import_block(imports: Iterable[str]) -> str:
    """Return statements that import, in order."""
    return "\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line)))


def last_lines(
    entry: str,
    *,
    may_be_2: bool,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    leave: str = "sys.exit(status)",
) -> str:
    """Return the lines that run a script and say what its status means.

    Args:
        entry: The expression that gives the status.
        may_be_2: Whether that may be 2.
        before: Lines before that.
        after: Lines behind it, before the status is said.
        leave: The statement that ends the script.
    """
    # The watching process prints the last line, not the watched one.
    said = [f'if status != 2 and not os.environ.get("REPRO_WATCHED"):\n    {_SAID}'] if may_be_2 else [_SAID]
    lines = [*before, f"status = {entry}", *after, *said, leave]
    return "\n".join(['if __name__ == "__main__":', *(f"    {line}" for text in lines for line in text.split("\n"))])
