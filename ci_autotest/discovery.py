"""Discovery of test files: searches their text for ``autotest``. Only workers import them."""

from __future__ import annotations

import ast
import difflib
import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from ci_autotest.errors import ConfigError, UsageError
from ci_autotest.extensions import source_of
from ci_autotest.values.entry_points import SOURCE, module_in

if TYPE_CHECKING:
    from collections.abc import Iterable

SUITE: Final = "builtin:suite"
_MENTION: Final = re.compile(rb"\b(?:auto|loader)test\b")
_DEFAULT_FOLDER: Final = "autotests"
#: Folders with files that are not the user's own tests.
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
#: Bytes of a file that are searched for ``autotest`` and ``loadertest``.
_SCANNED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Selection:
    """The files to import, and which of their tests to run.

    Args:
        files: Paths relative to the root, with ``/``, ``builtin:suite/<family>`` or ``source:<name>/<module>``; in
            order, without repeats.
        wanted: Names of the selected tests by file; a file without an entry runs all of its tests.
        read: Number of Python files that were searched.
        asked: The paths from the command line, for messages.
    """

    files: tuple[str, ...]
    wanted: dict[str, tuple[str, ...]]
    read: int
    asked: tuple[str, ...]


def select(paths: Iterable[str], root: Path, start: Path) -> Selection:
    """Return the test files that the given paths select.

    Args:
        paths: ``FILE`` or ``FOLDER``, optionally with ``::TEST``, or ``builtin:suite``, optionally with ``::FAMILY``,
            or ``source:NAME``, another package's tests, optionally with ``/MODULE`` and ``::TEST``.
            Without any path, ``autotests/`` is searched, or else all ``autotest_*.py`` and ``test_*.py`` files.
        root: The configuration's folder; names are relative to it.
        start: The folder that relative paths start from.

    Raises:
        UsageError: A path is empty, or does not exist.
    """
    asked = tuple(paths)
    if not asked:
        return _default(root)
    files: dict[str, None] = {}
    wanted: dict[str, tuple[str, ...]] = {}
    whole: set[str] = set()
    read = 0
    for path in asked:
        location, _, name = path.partition("::")
        if not location.strip():  # The empty path would be the current folder: a variable of a script that is not set.
            message = f"path '{path}' names no file. Give a file, a folder or {SUITE}."
            raise UsageError(message)
        if source := source_of(location):
            found, count = source.files(location), 0
        elif location.startswith(SOURCE):
            found, count = _modules_of(location), 0
        elif location.startswith(SUITE):
            found, count = _suite(path if location == SUITE else location), 0
            name = "" if location == SUITE else name
        else:
            found, count = _files(start / location, root, path)
        read += count
        for file in found:
            files[file] = None
            if name:
                wanted[file] = (*wanted.get(file, ()), name.replace("::", "."))
            else:
                whole.add(file)
    # A file that is given both as a whole and with `::TEST` runs as a whole.
    return Selection(tuple(files), {file: names for file, names in wanted.items() if file not in whole}, read, asked)


def _default(root: Path) -> Selection:
    folder = root / _DEFAULT_FOLDER
    if folder.is_dir():
        found, read = _files(folder, root, _DEFAULT_FOLDER)
        return Selection(tuple(found), {}, read, (_DEFAULT_FOLDER,))
    candidates = [path for path in _python_files(root) if path.name.startswith(("autotest_", "test_"))]
    found = [_relative(path, root) for path in candidates if _mentions(path)]
    return Selection(tuple(found), {}, len(candidates), (str(root),))


def _files(path: Path, root: Path, asked: str) -> tuple[list[str], int]:
    if not path.exists():
        message = f"path '{asked}' does not exist (looked for {path}). Give a file, a folder or {SUITE}."
        raise UsageError(message)
    candidates = [path] if path.is_file() else _python_files(path)
    return [_relative(file, root) for file in candidates if _is_asked_for(file)], len(candidates)


def _python_files(folder: Path) -> list[Path]:
    found = []
    for place, folders, files in os.walk(folder, onerror=_refuse_unreadable):
        folders[:] = [name for name in folders if not _is_skipped(name)]
        found += [Path(place, name) for name in files if name.endswith(".py") and not _is_skipped(name)]
    return sorted(found)


def _is_skipped(name: str) -> bool:
    return name in _SKIPPED or name.startswith(".")


def _refuse_unreadable(error: OSError) -> NoReturn:
    """Refuse a folder that cannot be listed: its tests would be missing without a word.

    Raises:
        UsageError: Always.
    """
    message = f"folder '{error.filename}' cannot be read: {error.strerror}. Make it readable, or name other paths."
    raise UsageError(message) from error


def _is_asked_for(path: Path) -> bool:
    """Whether a file may define tests; an ``autotest_*.py`` file with a syntax error is reported, not skipped."""
    return _mentions(path) or (path.name.startswith("autotest_") and not _is_python(path))


def _is_python(path: Path) -> bool:
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return True


def _mentions(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _MENTION.search(file.read(_SCANNED)) is not None
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}. Make it readable, or name other paths."
        raise UsageError(message) from error


def _relative(path: Path, root: Path) -> str:
    resolved, base = path.resolve(), root.resolve()
    return resolved.relative_to(base).as_posix() if resolved.is_relative_to(base) else resolved.as_posix()


def families() -> tuple[str, ...]:
    """Return the families of the shipped suite."""
    folder = Path(__file__).parent / "suite"
    return tuple(sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")))


def _modules_of(location: str) -> list[str]:
    """Return the modules with tests of another package's source, or the one that is named, as files.

    Raises:
        ConfigError: No package has the source, or two have.
        UsageError: It has no such module.
    """
    name, _, wanted = location.removeprefix(SOURCE).partition("/")
    package = module_in(SOURCE + name)
    # Only the first part is looked up: for others, Python would import what they are in.
    first, *others = package.split(".")
    try:
        spec = find_spec(first)
    except (ImportError, ValueError):
        spec = None
    roots = spec.submodule_search_locations if spec is not None else None
    folders = [folder for root in roots or () if (folder := Path(root, *others)).is_dir()]
    if not folders:
        message = f"source '{name}' names '{package}', which is not an installed package of modules with tests."
        raise ConfigError(message)
    files = sorted(path for folder in folders for path in folder.glob("*.py") if path.stem != "__init__")
    known = [path.stem for path in files if _mentions(path)]
    if wanted and wanted not in known:
        message = f"'{location}' is not a module with tests of source '{name}'. Known: {', '.join(known) or 'none'}."
        raise UsageError(message)
    return [f"{SOURCE}{name}/{module}" for module in ([wanted] if wanted else known)]


def _suite(path: str) -> list[str]:
    # Users write `builtin:suite::pooling`; test ids are spelled `builtin:suite/pooling::max_pool2d`.
    family = path.removeprefix(SUITE).removeprefix("/" if path.startswith(f"{SUITE}/") else "::")
    known = families()
    if not family:
        return [f"{SUITE}/{name}" for name in known]
    if family not in known:
        nearest = difflib.get_close_matches(family, known, 1, 0.7)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(known)}."
        message = f"'{path}' is not a family of the shipped suite. {hint}"
        raise UsageError(message)
    return [f"{SUITE}/{family}"]


def nothing_found(selection: Selection) -> str:
    """Return the message for a selection without a test."""
    paths = ", ".join(f"'{path}'" for path in selection.asked)
    files = "1 file" if selection.read == 1 else f"{selection.read} files"
    defines = "it defines no" if selection.read == 1 else "none defines a"
    looked = "Without a path, autotests/ is searched, else every autotest_*.py and test_*.py"
    found = f"no test found in {paths}: {files} read, {defines} function decorated with `autotest`."
    return f"{found} {looked}; `ci-autotest init` writes a first test."
