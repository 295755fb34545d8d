"""The tests of a worker: it imports a file, finds its tests and makes their bodies callable."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
import unittest
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ci_autotest.errors import AuthorError
from ci_autotest.extensions import HARNESSES, part, source_of
from ci_autotest.program.python_names import file_module
from ci_autotest.record.body_call import case_name, fixtures_of, parametrized, with_case
from ci_autotest.record.declaration import Declaration, declaration_of
from ci_autotest.record.duplicate_tests import lost_tests
from ci_autotest.record.skips import MarkBearers, expected_failure_of, skip_reason_of
from ci_autotest.run.messages import ReplacedTest, TestInfo
from ci_autotest.values.declared_test import declared_test_of
from ci_autotest.values.entry_points import SOURCE, module_in
from ci_autotest.values.finding import Location

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from types import ModuleType

    from ci_autotest.config import Compat, OpInfo
    from ci_autotest.values.declared_test import DeclaredTest
    from ci_autotest.values.result import XFail

#: Prefix of a file name that means a family of the shipped suite.
SUITE: Final = "builtin:suite/"
_SUITE_PACKAGE: Final = "ci_autotest.suite"


class SourceSetting(NamedTuple):
    """What the tests of a source are made of.

    Attributes:
        name: Name of the source.
        root: The configuration's folder.
        seed: Root seed of the run.
        opinfo: What the configuration says of PyTorch's databases.
    """

    name: str
    root: Path
    seed: int
    opinfo: OpInfo | None = None


class SourceTests(Protocol):
    """The tests of a source in a worker (``ci_autotest.extensions.Source``), which is made of its setting."""

    def tests(
        self, file: str, wanted: Collection[str], at_most: int | None, enter: Callable[[], None]
    ) -> list[TestInfo]:
        """Return the tests of a file of the source; arguments are those of ``Library.tests``."""
        ...

    def find(self, file: str, name: str) -> tuple[DeclaredTest, Callable[..., Any]]:
        """Return the declaration of a test and its body.

        Raises:
            LookupError: The source has no such test.
        """
        ...


class Library:
    """The test files that this worker has imported.

    Args:
        root: The configuration's folder; ids are relative to it.
        compat: Harness for which the files were written; ``None`` for ours.
        seed: Root seed of the run, from which samples of a database are generated.
        chosen: What the configuration says of PyTorch's databases.
    """

    def __init__(self, root: Path, compat: Compat | None = None, seed: int = 0, chosen: OpInfo | None = None) -> None:
        self._root, self._compat, self._seed, self._chosen = root, compat, seed, chosen
        self._sources: dict[str, SourceTests] = {}
        self._modules: dict[str, ModuleType] = {}
        self._tests: dict[str, dict[str, _Declared]] = {}
        self._bodies: dict[tuple[str, str], Callable[..., Any]] = {}

    def tests(
        self,
        file: str,
        wanted: Collection[str] = (),
        at_most: int | None = None,
        enter: Callable[[], None] = lambda: None,
    ) -> list[TestInfo]:
        """Return the tests that a file defines, in the order of their lines.

        Args:
            file: Path of the file, or a source or family that is built in.
            wanted: Names of the tests that were asked for; empty for all of them.
            at_most: Number up to which samples are counted; ``None`` for all of them.
            enter: Called before each test whose samples are counted, which may take as long as a case.
        """
        if source := self._source(file):
            return source.tests(file, wanted, at_most, enter)
        found = [_info(file, declared) for declared in _declared(self._module(file))]
        return sorted(found, key=lambda info: info.location.line)

    def lost(self, file: str) -> list[ReplacedTest]:
        """Return the tests of a file that a later definition with their name replaces."""
        if source_of(file) or file.startswith((SUITE, SOURCE)):
            return []
        return [
            ReplacedTest(name=each.name, line=each.line, message=each.message(Path(file).name))
            for each in lost_tests(str((self._root / file).resolve()))
        ]

    def foreign(self, file: str) -> int:
        """Return the number of unittest's tests in a file that are none of ours, if it was written for others."""
        if self._compat is None or source_of(file):
            return 0
        return sum(map(_foreign_tests, vars(self._module(file)).values()))

    def find(self, test: TestInfo) -> tuple[Declaration, Callable[[], object]]:
        """Return the declaration of a test of operators, and its body bound to its arguments.

        Raises:
            LookupError: The file no longer defines it.
            AuthorError: It is another kind of test.
        """
        declaration, body = self.declared(test.file, test.name)
        if not isinstance(declaration, Declaration):
            message = (
                f"{test.id} tests {declaration.subject}, so it has no draws and no program. Use `ci-autotest run`."
            )
            raise AuthorError(message)
        return declaration, body

    def declared(self, file: str, name: str) -> tuple[DeclaredTest, Callable[..., Any]]:
        """Return the declaration of any test, and its body bound to its arguments.

        Raises:
            LookupError: The file no longer defines it.
        """
        if source := self._source(file):
            return source.find(file, name)
        declared = self._declared_in(file).get(name)
        if declared is None:
            message = f"{file} defines no test {name!r}."
            raise LookupError(message)
        if (file, name) not in self._bodies:
            self._bodies[file, name] = _bound(declared)
        return declared.declaration, self._bodies[file, name]

    def skip_reason(self, file: str, name: str) -> str | None:
        """Return why the marks of a test skip it; ``None`` if they do not."""
        if source_of(file):
            return None
        declared = self._declared_in(file).get(name)
        return skip_reason_of(declared.marked) if declared is not None else None

    def _declared_in(self, file: str) -> dict[str, _Declared]:
        found = self._tests.get(file)
        if found is None:
            found = self._tests[file] = {}
            for declared in _declared(self._module(file)):
                found.setdefault(declared.name + declared.arguments, declared)
        return found

    def _source(self, file: str) -> SourceTests | None:
        source = source_of(file)
        if source is None:
            return None
        if source.name not in self._sources:
            setting = SourceSetting(source.name, self._root, self._seed, self._chosen)
            self._sources[source.name] = part(source.worker)(setting)
        return self._sources[source.name]

    def _module(self, file: str) -> ModuleType:
        module = self._modules.get(file)
        if module is None:
            module = self._modules[file] = _imported(file, self._root, self._compat)
        return module


class _Declared(NamedTuple):
    """A test of a module: its qualified name, its arguments as in ``[3-same]``, and what its body is bound to."""

    name: str
    arguments: str
    declaration: DeclaredTest
    owner: type | None
    given: Mapping[str, Any]
    marked: MarkBearers


def _info(file: str, declared: _Declared) -> TestInfo:
    declaration, separator = declared.declaration, "::"
    base = declaration.id or f"{file}{separator}{declared.name.replace('.', separator)}"
    return TestInfo(
        id=base + declared.arguments, file=file, name=declared.name + declared.arguments, n=declaration.n,
        location=Location(file=file, line=_line(declaration.body)),
        candidate=declaration.candidate, xfail=_xfail(declared),
        examples=len(declaration.examples) if isinstance(declaration, Declaration) else 0,
    )  # fmt: skip


def _xfail(declared: _Declared) -> XFail | None:
    # A mark that cannot be read is an error of its test alone, which `_bound` reports.
    with suppress(AuthorError):
        return expected_failure_of(declared.marked)
    return None


def _imported(file: str, root: Path, compat: Compat | None) -> ModuleType:
    if file.startswith(SUITE):
        return importlib.import_module(f"{_SUITE_PACKAGE}.{file.removeprefix(SUITE)}")
    if file.startswith(SOURCE):
        return importlib.import_module(module_in(file))
    path = (root / file).resolve()
    for folder in (str(path.parent), str(root)):
        if folder not in sys.path:
            sys.path.append(folder)
    name = file_module(file)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        message = f"{file} is not a Python file."
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    # Before it runs, because `dataclasses` looks a class's module up there while the class is made.
    sys.modules[name] = module
    try:
        if compat is None:
            spec.loader.exec_module(module)
        else:
            part(HARNESSES[compat])(path, module)
    except ModuleNotFoundError as error:
        harness = (error.name or "").partition(".")[0]
        if compat is None and harness in HARNESSES:
            message = (
                f"there is no module {error.name!r} here. Files of {harness}'s own tests run with `--compat {harness}`"
            )
            raise ImportError(message) from error
        raise
    return module


def _declared(module: ModuleType) -> Iterator[_Declared]:
    """Yield the tests of a module: functions and methods that it defines itself and does not import."""
    for name, value in list(vars(module).items()):
        declaration = declared_test_of(value)
        if declaration is not None and declaration.body.__module__ == module.__name__:
            yield from _calls(name, value, declaration, None, module)
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for method, member in list(vars(value).items()):
                declaration = declared_test_of(member)
                if declaration is not None:
                    yield from _calls(f"{name}.{method}", member, declaration, value, module)


def _calls(
    name: str,
    function: Callable[..., object],
    declaration: DeclaredTest,
    owner: type | None,
    module: ModuleType,
) -> Iterator[_Declared]:
    """Yield a test for each row of its ``parametrize``.

    A function that needs more arguments and whose name does not start with ``test`` is a helper, not a test.
    """
    names: Counter[str] = Counter()
    for given, marks in parametrized(function, declaration.body):
        if name.rpartition(".")[2].startswith("test") or not fixtures_of(
            declaration.body, given, is_method=owner is not None
        ):
            called = case_name(declaration.body, (), given)
            names[called] += 1  # Different objects of one type have the same name.
            unique = called if names[called] == 1 else f"{called[:-1]}-{names[called]}]"
            yield _Declared(name, unique, declaration, owner, given, MarkBearers(marks, function, owner, module))


def _bound(declared: _Declared) -> Callable[[], object]:
    body, owner, given = declared.declaration.body, declared.owner, declared.given
    expected_failure_of(declared.marked)
    reason = skip_reason_of(declared.marked)
    if reason is not None:
        return functools.partial(_skip, reason)
    missing = fixtures_of(body, given, is_method=owner is not None)
    if missing:
        message = (
            f"{declared.name}() takes {missing[0]!r}, but `ci-autotest run` provides only a test_case and the "
            "arguments of parametrize. Run it with pytest, or give the argument a default."
        )
        raise AuthorError(message)
    if owner is not None:
        if issubclass(owner, unittest.TestCase):
            # unittest asks for the name of any method; the body itself is called below.
            return lambda: _in_test_case(owner("__init__"), lambda held: body(held, **given))
        return lambda: body(owner(), **given)  # A new object for each case, as in pytest.
    args, kwargs = with_case(body, (), given)
    return functools.partial(body, *args, **kwargs) if args or kwargs else body


def _skip(reason: str) -> None:
    raise unittest.SkipTest(reason)


def _in_test_case(held: unittest.TestCase, body: Callable[..., object]) -> object:
    """Call a method as unittest does, with setUp before it and tearDown after it."""
    held.setUp()
    try:
        return body(held)
    finally:
        held.tearDown()
        held.doCleanups()


def _foreign_tests(value: object) -> int:
    """Return the number of methods of a test case that unittest runs and that are not declared as tests of ours."""
    if not (inspect.isclass(value) and issubclass(value, unittest.TestCase)):
        return 0
    own = [member for name, member in vars(value).items() if name.startswith("test") and callable(member)]
    return len([member for member in own if declaration_of(member) is None])


def _line(body: Callable[..., object]) -> int:
    written: Any = inspect.unwrap(body)
    return int(written.__code__.co_firstlineno)
