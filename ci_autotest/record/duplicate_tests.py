"""Duplicate names of tests in a file: Python keeps the last definition, so the first would never run."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import AuthorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DECORATOR: Final = re.compile(r"(?:\w+\.)*autotest\s*\(.*\)", re.DOTALL)
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=256)
def refuse_duplicates(file: str) -> None:
    """Refuse a source file in which a later definition with the same name replaces a test.

    Definitions in the branches of an ``if`` are alternatives, not duplicates.

    Raises:
        AuthorError: A test is replaced; the message names both lines.
    """
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # importing the file reports the problem
    for name, first, second in _lost(tree.body, ""):
        message = (
            f"{Path(file).name} defines {name} in line {first} and again in line {second}: "
            "the first would never run. Rename one."
        )
        raise AuthorError(message)


def _lost(body: Sequence[ast.stmt], owner: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name and both lines of each test that a later definition in the same scope replaces."""
    tests: dict[str, int] = {}
    for item in body:
        if not isinstance(item, _Definition):
            continue
        name = f"{owner}{item.name}"
        if name in tests:
            yield name, tests[name], item.lineno
        tests.pop(name, None)
        if isinstance(item, ast.ClassDef):
            yield from _lost(item.body, f"{name}.")
        elif any(_DECORATOR.fullmatch(ast.unparse(decorator)) for decorator in item.decorator_list):
            tests[name] = item.lineno
