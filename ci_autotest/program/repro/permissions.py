"""What a program from outside may name when it is printed as code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ci_autotest.program.targets import is_own, is_path_of_own, named_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


def _no_calls(_: str) -> Collection[str]:
    return ()


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
        has_new_kernels: Whether a text to read may name kernels that only a pull request has, if it does nothing but
            compute (``plain_program``).
        report: Folder of the report from where the program is run, in which it finds its tensors.
        is_of_this_run: Whether the program was made by this run, and may name any operator of the user's.
    """

    names: Collection[str] = frozenset()
    folders: Collection[str] = frozenset()
    options: tuple[Mapping[str, object], ...] = ()
    environs: tuple[Mapping[str, str], ...] = ()
    calls: Callable[[str], Collection[str]] = _no_calls
    has_new_kernels: bool = False
    report: str = "autotest-report"
    is_of_this_run: bool = False

    def is_named(self, target: str) -> bool:
        """Whether a program may name this operator of the user's; if it is not known, the text is checked, too."""
        return self.is_known(target) or (self.has_new_kernels and is_path_of_own(target))

    def is_known(self, target: str) -> bool:
        """Whether the configuration names this operator of the user's, or this run has made the program."""
        return is_own(target) if self.is_of_this_run else named_in(self.names)(target)
