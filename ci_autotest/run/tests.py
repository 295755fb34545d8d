"""Tests in a worker: a file imported, the declarations found in it, a body made callable."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.record.declare import declaration_of
from ci_autotest.result import Location
from ci_autotest.run.messages import TestInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from ci_autotest.record.declare import Declaration

#: Prefix of the file name that stands for a family of the shipped suite.
SUITE: Final = "builtin:suite/"
_GENERATORS: Final = re.compile(r"^\s*(?:import\s+[^#\n]*\b(?:random|numpy)\b|from\s+(?:random|numpy)\b)", re.MULTILINE)
_SUITE_PACKAGE: Final = "ci_autotest.suite"


class Library:
    """Hold the test files that this worker has imported.

    Args:
        root: The configuration's folder; ids are relative to it.
    """

    def __init__(self, root: Path) -> None:
        """Begin with none."""
        self._root = root
        self._modules: dict[str, ModuleType] = {}
        self._random: dict[str, bool] = {}

    def tests(self, file: str) -> list[TestInfo]:
        """Return the tests that a file defines, in the order of their lines."""
        found = [self._info(file, name, declaration) for name, declaration, _ in _declared(self._module(file))]
        return sorted(found, key=lambda info: info.location.line)

    def find(self, test: TestInfo) -> tuple[Declaration, Callable[[], object]]:
        """Return a test's declaration and its body, bound.

        Raises:
            LookupError: The file no longer defines it.
        """
        for name, declaration, owner in _declared(self._module(test.file)):
            if name == test.name:
                return declaration, _bound(declaration, owner)
        message = f"{test.file} defines no test {test.name!r}."
        raise LookupError(message)

    def reaches_random(self, test: TestInfo) -> bool:
        """Whether the file, or a module of the user's that is loaded, names Python's or numpy's global generators."""
        known = self._random.get(test.file)
        if known is None:
            known = self._random[test.file] = self._names_random(test)
        return known

    def _names_random(self, test: TestInfo) -> bool:
        roots = (str(self._root), str((self._root / test.file).parent))
        own = [
            module
            for module in list(sys.modules.values())
            if str(getattr(module, "__file__", None) or "").startswith(roots)
            and "site-packages" not in str(module.__file__)
        ]
        own.append(self._module(test.file))
        return any(_names_generators(str(module.__file__)) for module in own)

    def _module(self, file: str) -> ModuleType:
        module = self._modules.get(file)
        if module is None:
            module = self._modules[file] = _imported(file, self._root)
        return module

    def _info(self, file: str, name: str, declaration: Declaration) -> TestInfo:
        where = Location(file=file, line=_line(declaration.body))
        separator = "::"
        return TestInfo(
            id=declaration.id or f"{file}{separator}{name.replace('.', separator)}",
            file=file, name=name, n=declaration.n, location=where,
        )  # fmt: skip


def _names_generators(file: str) -> bool:
    """Whether a source file imports Python's or numpy's generators anywhere, in a function too."""
    try:
        return _GENERATORS.search(Path(file).read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return True


def _imported(file: str, root: Path) -> ModuleType:
    if file.startswith(SUITE):
        return importlib.import_module(f"{_SUITE_PACKAGE}.{file.removeprefix(SUITE)}")
    path = (root / file).resolve()
    for folder in (str(path.parent), str(root)):
        if folder not in sys.path:
            sys.path.append(folder)
    name = "autotest_file_" + "".join(c if c.isalnum() else "_" for c in file)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        message = f"{file} is no Python file."
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _declared(module: ModuleType) -> Iterator[tuple[str, Declaration, type | None]]:
    """Yield the tests of a module: its own functions, and the methods of its own classes."""
    for name, value in list(vars(module).items()):
        declaration = declaration_of(value)
        if declaration is not None and declaration.body.__module__ == module.__name__:
            if not _takes_more(declaration.body):
                yield name, declaration, None
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for method, member in list(vars(value).items()):
                declaration = declaration_of(member)
                if declaration is not None:
                    yield f"{name}.{method}", declaration, value


def _takes_more(body: Callable[..., object]) -> bool:
    """Whether a decorated function needs more arguments than a test case: it is a helper, not a test."""
    parameters = inspect.signature(body).parameters.values()
    return sum(p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD} for p in parameters) > 1


def _bound(declaration: Declaration, owner: type | None) -> Callable[[], object]:
    body = declaration.body
    if owner is not None:
        if issubclass(owner, unittest.TestCase):
            return lambda: _in_test_case(owner("__init__"), body)
        held = owner()
        return lambda: body(held)
    needed = [p for p in inspect.signature(body).parameters.values() if p.default is p.empty]
    if not needed:
        return body
    case = unittest.TestCase("__init__")
    return lambda: body(case)


def _in_test_case(held: unittest.TestCase, body: Callable[..., object]) -> object:
    """Call a method as unittest does: set up before, torn down after."""
    held.setUp()
    try:
        return body(held)
    finally:
        held.tearDown()
        held.doCleanups()


def _line(body: Callable[..., object]) -> int:
    return body.__code__.co_firstlineno
