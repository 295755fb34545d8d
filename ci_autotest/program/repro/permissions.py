"""What a program from outside may name when it is printed as code."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ci_autotest.program.targets import is_own, named_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping


def _no_calls(_: str) -> Collection[str]:
    return ()


def _is_unknown(name: str) -> bool:
    """Whether a name can be a function or module of the user's, and is of no package that is installed here."""
    try:
        return is_own(name) and find_spec(name.partition(".")[0]) is None
    except (ImportError, ValueError):
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What the configuration here names; by default nothing.

    Attributes:
        names: Functions and modules of the user's.
        folders: Folders that the import path may have.
        options: Arguments of a compiler, as each candidate has them.
        environs: Environment variables, as each candidate has them.
        calls: Returns the functions and adapters that the table of a framework names, by its module. It is called only
            for a framework's program, because a table takes a while to read.
        is_of_this_run: Whether the program was made by this run, and may name any operator of the user's.
        shows_unnamed: Whether it may name functions that nobody here knows: a kernel that a pull request adds is in no
            configuration. A reader is told which; a text among its arguments is refused, and so are functions of
            packages that are installed here.
    """

    names: Collection[str] = frozenset()
    folders: Collection[str] = frozenset()
    options: tuple[Mapping[str, object], ...] = ()
    environs: tuple[Mapping[str, str], ...] = ()
    calls: Callable[[str], Collection[str]] = _no_calls
    is_of_this_run: bool = False
    shows_unnamed: bool = False

    def is_named(self, target: str) -> bool:
        """Whether a program may name this operator of the user's."""
        if self.is_of_this_run:
            return is_own(target)
        return named_in(self.names)(target) or (self.shows_unnamed and _is_unknown(target))

    def allows(self, names: Iterable[str]) -> bool:
        """Whether a program may be made of these functions and modules of the user's."""
        return all(name in self.names or (self.shows_unnamed and _is_unknown(name)) for name in names)

    def unnamed(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of a program's names that the configuration does not name, in order."""
        is_configured = named_in(self.names)
        return tuple(sorted(name for name in set(names) if name not in self.names and not is_configured(name)))
