"""One environment: reused where it is current, else made anew; why it cannot be is kept beside it.

A file with the pins, ``pins.txt``, is written last, so that what was interrupted is made anew. The reason why an
environment is not there, ``<name>.reason``, is what the tests that need it are skipped with.
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
#: Seconds for the largest download on a slow line.
_INSTALL_S: Final = 3_600.0
_ASK_S: Final = 30.0
_SHOWN_LINES: Final = 3


class Made(NamedTuple):
    """Say what came of an environment: whether it is there, and a line that says so."""

    is_there: bool
    text: str


def made(name: str, recipe: Recipe, folder: Path, environ: Mapping[str, str]) -> Made:
    """Make an environment, or find it current.

    Args:
        name: Of the environment.
        recipe: What it is made of.
        folder: Where it is put.
        environ: Says what is on PATH and where pyenv is.
    """
    home, reason = folder / name, folder / f"{name}.reason"
    if _is_current(home, recipe):
        reason.unlink(missing_ok=True)
        return Made(is_there=True, text=f"{name}: {home} is current")
    why = _make(name, recipe, home, environ)
    if why:
        folder.mkdir(exist_ok=True)
        reason.write_text(f"{why}\n", encoding="utf-8")
        return Made(is_there=False, text=f"NOT MADE: {name}: {why}")
    reason.unlink(missing_ok=True)
    return Made(is_there=True, text=f"{name}: made {home}")


def _is_current(home: Path, recipe: Recipe) -> bool:
    """Whether an environment has what the recipe says: by its pins, or, made by hand, by what is installed in it."""
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


def _make(name: str, recipe: Recipe, home: Path, environ: Mapping[str, str]) -> str:
    """Make an environment; return why it cannot be made, nothing where it was."""
    python = next(interpreters(recipe.python, environ), None)
    if python is None:
        return (
            f"it needs CPython {recipe.python}, and there is no python{recipe.python} on PATH and none of pyenv's. "
            f"Install it (pyenv install {recipe.python}), and run: make candidates ONLY={name}"
        )
    sys.stdout.write(f"{name}: with {python}; about {recipe.size_mb:,} MB are downloaded\n")
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
    """Yield interpreters of a version: this one, the one on PATH, pyenv's; only those that answer."""
    root = Path(environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [sys.executable, shutil.which(f"python{version}", path=environ.get("PATH"))]
    found += [str(path) for path in sorted(root.glob(f"versions/{version}*/bin/python"), reverse=True)]
    for python in found:
        if python is not None and version_of(python) == version:
            yield python


def version_of(python: str) -> str:
    """Return an interpreter's version as ``3.10``, nothing where it does not run: a shim of pyenv's may be of none."""
    return _run([python, "-c", _VERSION], _ASK_S).stdout.strip()


def _run(words: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))
