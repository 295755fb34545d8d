"""Duplicate names of tests in a file: Python keeps only the last definition, so the first would never run."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.errors import AuthorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DECORATOR: Final = re.compile(r"(?:\w+\.)*autotest\s*\(.*\)", re.DOTALL)
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class LostTest(NamedTuple):
    """A test, or a class with tests, that a later definition with its name replaces.

    Attributes:
        name: Qualified name.
        line: Line of the definition that is lost.
        again: Line of the definition that replaces it.
        tests: Number of tests of a class; 0 for a test.
        has_successor: True if the definition that replaces it is a test, or a class with tests.
    """

    name: str
    line: int
    again: int
    tests: int = 0
    has_successor: bool = False

    def message(self, file: str) -> str:
        """Return a message with the problem and its remedy.

        Args:
            file: The file's name, for the reader.
        """
        what, rest = f"{file} defines {self.name} in line {self.line} and again in line {self.again}", "Rename one."
        if not self.tests:
            return f"{what}: the first would never run. {rest}"
        tests = "test" if self.tests == 1 else f"{self.tests} tests"
        return f"{what}: the {tests} of the first would never run. {rest}"


def refuse_duplicate(file: str, name: str) -> None:
    """Refuse to run a test if an earlier one with its name would never run, because nothing else would report that.

    If a test is replaced by something that is no test, every test of its file is refused, because none has its name.

    Args:
        file: Path of the test's source file.
        name: The test's qualified name.

    Raises:
        AuthorError: The test, or something that is no test, replaces another test. The message names both lines.
    """
    for lost in lost_tests(file):
        if not lost.has_successor or name == lost.name or name.startswith(f"{lost.name}."):
            raise AuthorError(lost.message(Path(file).name))


@lru_cache(maxsize=256)
def lost_tests(file: str) -> tuple[LostTest, ...]:
    """Return the tests of a source file that a later definition with the same name replaces.

    Definitions in the branches of an ``if`` are alternatives, not duplicates.
    """
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()  # importing the file reports the problem
    return tuple(_lost(tree.body, ""))


def _lost(body: Sequence[ast.stmt], owner: str) -> Iterator[LostTest]:
    """Yield each test, and each class with tests, that a later definition in the same scope replaces."""
    known: dict[str, LostTest] = {}
    for item in body:
        if not isinstance(item, _Definition):
            continue
        name = f"{owner}{item.name}"
        count = sum(map(_is_test, item.body)) if isinstance(item, ast.ClassDef) else 0
        is_successor = bool(count) or _is_test(item)
        if name in known:
            yield known.pop(name)._replace(again=item.lineno, has_successor=is_successor)
        if isinstance(item, ast.ClassDef):
            yield from _lost(item.body, f"{name}.")
        if is_successor:
            known[name] = LostTest(name, item.lineno, 0, count)


def _is_test(item: ast.stmt) -> bool:
    return isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and any(
        _DECORATOR.fullmatch(ast.unparse(decorator)) for decorator in item.decorator_list
    )
