"""The pytest plugin: the options ``--autotest-*`` for ``@autotest`` tests.

It also collects ``autotest_*.py`` files, such as those that ``ci-autotest init`` writes.

Every pytest of an environment that has this package loads the plugin, so it imports no framework.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ci_autotest.errors import NoCandidateError, OutputError, SessionError
from ci_autotest.pytest_options import PYTEST_OPTIONS, PytestOptions
from ci_autotest.report.finding_folders import check_writable

if TYPE_CHECKING:
    from collections.abc import Generator

_KEY: Final = pytest.StashKey[PytestOptions]()
#: Upper bound of root seeds, as in ``ci_autotest.config``, which is not imported here because it takes longer.
_SEEDS: Final = 1 << 63
#: Attribute of decorated functions, from ``values/declared_test``, not imported either.
_DECLARED: Final = "__ci_autotest__"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ``--autotest-*`` options."""
    group = parser.getgroup("autotest", "operator alignment (ci-autotest)")
    group.addoption(
        "--autotest-cases", metavar="N", type=_cases, help="cases of each @autotest test, whatever it declares"
    )
    group.addoption("--autotest-seed", metavar="N|random", type=_seed, help="root seed of the inputs")
    group.addoption(
        "--autotest-candidate", metavar="NAME", action="append", default=[],
        help="a candidate of autotest.yml or a built-in one; may be repeated",
    )  # fmt: skip
    group.addoption("--autotest-output", metavar="DIR", default="", help="folder for the findings, with a repro each")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the options for the tests."""
    option: Any = config.option
    names = tuple(dict.fromkeys(option.autotest_candidate))
    if option.autotest_output:
        _check_output(option.autotest_output)
    config.stash[_KEY] = PytestOptions(option.autotest_cases, option.autotest_seed, names, option.autotest_output)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Print the options, so that a run with a random seed can be repeated."""
    options = config.stash[_KEY]
    parts = [
        f"cases {options.cases}" if options.cases is not None else "",
        f"seed {options.seed}" if options.seed is not None else "",
        f"candidates {', '.join(options.candidates)}" if options.candidates else "",
    ]
    text = ", ".join(filter(None, parts))
    return [f"autotest: {text}"] if text else []


class _AutotestFile(pytest.Module):
    """An ``autotest_*.py`` file: its tests are those of ``ci-autotest run``, whatever they are called."""

    def istestfunction(self, obj: object, name: str) -> bool:
        """Whether a function is a test: by pytest's own rules, or one that the file declares itself."""
        is_own = getattr(obj, "__module__", "") == self.obj.__name__ and getattr(obj, "__name__", "") == name
        return super().istestfunction(obj, name) or (is_own and _is_declared_test(obj))


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Make the collector of a file that pytest was asked for, or that it collects by its own rules."""
    return _AutotestFile.from_parent(parent, path=module_path) if _is_autotest_file(module_path) else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect an ``autotest_*.py`` file that pytest would pass over."""
    if parent.session.isinitpath(file_path) or any(map(file_path.match, parent.config.getini("python_files"))):
        return None
    return pytest_pycollect_makemodule(file_path, parent)


def _is_autotest_file(path: Path) -> bool:
    # Other projects in the environment may have files of such a name.
    return path.match("autotest_*.py") and b"ci_autotest" in path.read_bytes()


def _is_declared_test(value: object) -> bool:
    """Whether it is a decorated function that needs no arguments besides those of ``parametrize``."""
    if not callable(value) or not hasattr(value, _DECLARED):
        return False
    needed = {name for name, each in inspect.signature(value).parameters.items() if each.default is each.empty}
    marks = [mark for mark in getattr(value, "pytestmark", ()) if mark.name == "parametrize"]
    given = {name.strip() for mark in marks for name in _argument_names(mark)}
    return needed <= given


def _argument_names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return names.split(",") if isinstance(names, str) else list(names)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Make the options available while a test runs."""
    token = PYTEST_OPTIONS.set(item.config.stash[_KEY])
    try:
        return (yield)
    finally:
        PYTEST_OPTIONS.reset(token)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """End the session with one usage error if the configuration or a candidate cannot be used.

    A test without a candidate fails, and the others go on.

    An exception of this hook, unlike one of a test, reaches pytest's own handling of usage errors.
    """
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, SessionError):
        if not hasattr(item.config, "workerinput"):
            raise pytest.UsageError(str(error))
        # A worker of pytest-xdist that ends with an exception is reported as a crash.
        report.longrepr = item.session.shouldfail = str(error)
    if isinstance(error, NoCandidateError):  # Also of a test that is expected to fail: nothing was compared.
        report.outcome, report.longrepr = "failed", str(error)
        vars(report).pop("wasxfail", None)
    return report


def _check_output(folder: str) -> None:
    try:
        check_writable(Path(folder))
    except OutputError as error:
        raise pytest.UsageError(str(error).replace("--output", "--autotest-output")) from None


def _cases(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"--autotest-cases is {text!r}: give 1 or more."
        raise pytest.UsageError(message)
    return int(text)


def _seed(text: str) -> int:
    if text == "random":
        return int.from_bytes(os.urandom(4), "little")
    if not text.isdecimal() or int(text) >= _SEEDS:
        message = f"--autotest-seed is {text!r}: give a number from 0 to {_SEEDS - 1}, or random."
        raise pytest.UsageError(message)
    return int(text)
