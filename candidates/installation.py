"""Installation of one environment, which is reused while it has the pinned packages.

``pins.txt`` is written last, so that an interrupted installation starts again from nothing. If an environment cannot be
installed, the reason is in ``<name>.reason`` beside it, and the tests that need the environment are skipped with it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ci_autotest.environments import Recipe

_PINS: Final = "pins.txt"
_VERSION: Final = "import sys; print('%d.%d' % sys.version_info[:2])"
#: Enough for the largest download on a slow line.
_INSTALL_S: Final = 3_600.0
_ASK_S: Final = 30.0
_SHOWN_LINES: Final = 3


class Result(NamedTuple):
    """Whether an environment is installed, and a line that reports it."""

    is_installed: bool
    text: str


def install(name: str, recipe: Recipe, folder: Path, environ: Mapping[str, str]) -> Result:
    """Install an environment, unless it is up to date.

    Args:
        name: Name of the environment.
        recipe: Its Python version and packages.
        folder: Folder of all environments.
        environ: Has PATH, and PYENV_ROOT if pyenv is elsewhere than in the home folder.
    """
    home, reason_file = folder / name, folder / f"{name}.reason"
    if _is_up_to_date(home, recipe):
        reason_file.unlink(missing_ok=True)
        return Result(is_installed=True, text=f"{name}: {home} is up to date")
    reason = _install(name, recipe, home, environ)
    if reason:
        folder.mkdir(exist_ok=True)
        reason_file.write_text(f"{reason}\n", encoding="utf-8")
        return Result(is_installed=False, text=f"NOT INSTALLED: {name}: {reason}")
    reason_file.unlink(missing_ok=True)
    return Result(is_installed=True, text=f"{name}: installed in {home}")


def _is_up_to_date(home: Path, recipe: Recipe) -> bool:
    """Whether an environment fits its recipe: by its pins or, if it was made by hand, by its installed packages."""
    python, pins = home / "bin" / "python", home / _PINS
    if not python.is_file():
        return False
    if pins.is_file():
        return pins.read_text(encoding="utf-8") == recipe.pins
    done = _run([str(python), "-m", "pip", "list", "--disable-pip-version-check", "--format", "freeze"], _ASK_S)
    installed = {_normal(line) for line in done.stdout.splitlines()}
    return version_of(str(python)) == recipe.python and installed.issuperset(map(_normal, recipe.packages))


def _normal(requirement: str) -> str:
    return requirement.strip().lower().replace("_", "-")


def _install(name: str, recipe: Recipe, home: Path, environ: Mapping[str, str]) -> str:
    """Install an environment; return the reason if that fails, else an empty string."""
    python = next(interpreters(recipe.python, environ), None)
    if python is None:
        return (
            f"it needs CPython {recipe.python}, and neither PATH nor pyenv has a python{recipe.python}. "
            f"Install it (pyenv install {recipe.python}), and run: make candidates ONLY={name}"
        )
    sys.stdout.write(f"{name}: downloading about {recipe.size_mb:,} MB for {python}\n")
    sys.stdout.flush()
    shutil.rmtree(home, ignore_errors=True)
    own = str(home / "bin" / "python")
    install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *recipe.packages]
    for words in ([python, "-m", "venv", str(home)], install if recipe.packages else []):
        done = _run(words, _INSTALL_S) if words else None
        if done is not None and done.returncode:
            last = " ".join(done.stderr.strip().splitlines()[-_SHOWN_LINES:])
            return f"{' '.join(words[:4])} ended with status {done.returncode}: {last or 'it printed nothing'}"
    (home / _PINS).write_text(recipe.pins, encoding="utf-8")
    return ""


def interpreters(version: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield working interpreters of a version: this one, the one on PATH, and those of pyenv."""
    root = Path(environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [sys.executable, shutil.which(f"python{version}", path=environ.get("PATH"))]
    found += [str(path) for path in sorted(root.glob(f"versions/{version}*/bin/python"), reverse=True)]
    for python in found:
        if python is not None and version_of(python) == version:
            yield python


def version_of(python: str) -> str:
    """Return an interpreter's version as ``3.10``; empty if it does not run, as a shim of pyenv without a version."""
    return _run([python, "-c", _VERSION], _ASK_S).stdout.strip()


def _run(words: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))
