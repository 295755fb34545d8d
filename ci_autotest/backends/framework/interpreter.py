"""A candidate's interpreter: where its framework is, what its host reports, and why it cannot be a host."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.environments import RECIPES, package_of
from ci_autotest.errors import UnavailableError
from ci_autotest.values.kernel_scope import EVERYTHING
from ci_autotest.values.process_end import exit_text
from ci_autotest.values.sandbox import kept_environ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.values.kernel_scope import KernelScope

#: The beginning of the message with which a host's boot refuses its interpreter (``host/main.BOOT``).
_TOO_OLD: Final = "it is Python "
_SHOWN_CHARS: Final = 300
_SHOWN_LINES: Final = 3


class HostHello(msgspec.Struct, frozen=True, kw_only=True):
    """A host's first message: what it is, or why it cannot be a host.

    Attributes:
        version: Version of the framework.
        libraries: Versions of Python and of the libraries that the framework computes with, by name.
        has_flags: Whether ``requires_grad`` and ``is_leaf`` exist there.
        has_graph: Whether it can run a body as one graph.
        graph_has_backward: Whether the outputs of such a graph have gradients.
        error: Class of the error that the import raised.
        message: Message of that error.
        name: The module that was not found.
    """

    version: str = ""
    libraries: dict[str, str] = {}
    has_flags: bool = True
    has_graph: bool = False
    graph_has_backward: bool = True
    error: str = ""
    message: str = ""
    name: str = ""


class Interpreter(NamedTuple):
    """The interpreter of a candidate and what its host runs there.

    Attributes:
        candidate: The candidate's name, for messages.
        python: Path of the interpreter, or a name on PATH.
        module: The framework's module.
        device: ``cpu`` or ``cuda``.
        folders: Folders of the user's own modules.
        replace: Dotted path of the user's function by the operator that it replaces.
        scope: What these functions take.
        env: Environment variables of the host, in addition to the worker's.
        is_rank: Whether the host is one rank of a group.
        sandbox: The beginning of the command that starts the host in a sandbox; empty if it is in none.
    """

    candidate: str
    python: str
    module: str
    device: str
    folders: tuple[str, ...] = ()
    replace: Mapping[str, str] = MappingProxyType({})
    scope: KernelScope = EVERYTHING
    env: Mapping[str, str] = MappingProxyType({})
    is_rank: bool = False
    sandbox: tuple[str, ...] = ()

    def executable(self) -> str:
        """Return the path of the interpreter.

        Raises:
            UnavailableError: There is no such executable file.
        """
        found = shutil.which(self.python)
        if found is None:
            raise self.unusable(_why_not_found(self.python))
        return found

    def environ(self) -> dict[str, str]:
        """Return the environment variables of the host; in a sandbox those that say how to compute."""
        return {**(kept_environ() if self.sandbox else os.environ), **self.env}

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command that starts the host, of the words that its interpreter takes."""
        if not self.sandbox:
            return [self.executable(), *words]
        own = [word for name, value in self.environ().items() for word in ("--setenv", name, value)]
        return [*self.sandbox, *own, "--", self.executable(), *words]

    def unusable(self, fault: str) -> UnavailableError:
        """Return the error for an interpreter that cannot be executed."""
        return UnavailableError(
            f"candidate '{self.candidate}': python: {self.python} {fault}. "
            "Give the path of an interpreter, CPython 3.10 or newer."
        )

    def import_failure(self, hello: HostHello) -> str:
        """Return why a host could not import its framework, and what to do."""
        if hello.name:
            framework = _nearest(hello.name) if hello.name == self.module else ""
            if framework:
                return f"has no module {hello.name!r}. Did you mean {framework!r}?"
            install = f"{self.python} -m pip install {package_of(hello.name.partition('.')[0])}"
            return f"has no module {hello.name!r}. Install it: {install}"
        lines = hello.message.strip().splitlines()
        shown = lines[0][:_SHOWN_CHARS].rstrip(".") if lines else ""
        if hello.error == UnavailableError.__name__:
            # The framework was imported; the message names the replacement that was not.
            return f"cannot import its replacements: {shown}"
        return f"cannot import {self.module}: {hello.error}: {shown}. {self.attempt()}"

    def early_end(self, code: int, output: str) -> str:
        """Return how an interpreter ended before its host's first message, and what to do.

        Args:
            code: Exit status, or the negative number of a signal.
            output: What it printed.
        """
        if output.startswith(_TOO_OLD):
            version = output.removeprefix(_TOO_OLD).partition(",")[0]
            return f"is Python {version}; a host needs CPython 3.10 or newer. Give another under `python:`."
        if "Unknown option: -I" in output:
            return "is older than Python 3.4; a host needs CPython 3.10 or newer. Give another under `python:`."
        lines = [line for line in output.splitlines() if "<frozen " not in line and "most recent call" not in line]
        lines = lines[-1:] if "Traceback (most recent call last)" in output else lines[:_SHOWN_LINES]
        shown = " ".join(" ".join(lines).split())[:_SHOWN_CHARS].rstrip(".") or "it printed nothing"
        return (
            f"{exit_text(code)} before {self.module} was imported: {shown}. "
            f"{self.attempt()}, with CPython 3.10 or newer."
        )

    def attempt(self) -> str:
        """Return the command with which a user can see the failure."""
        return f'Try: {self.python} -c "import {self.module}"'


def _why_not_found(python: str) -> str:
    if os.sep not in python:
        return "is not on PATH"
    return "is not an executable file" if Path(python).exists() else "does not exist"


def _nearest(module: str) -> str:
    """Return the framework whose name a module's name misspells, if there is one."""
    known = {recipe.module for recipe in RECIPES.values()}
    return next(iter(difflib.get_close_matches(module, known - {module}, 1, 0.75)), "") if module not in known else ""
