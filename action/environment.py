"""What is installed: an environment for the tests, and the publisher's packages apart from it."""

from __future__ import annotations

import shlex
import site
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from action import inputs
from action.foreign import run_foreign
from action.inputs import StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTION = Path(__file__).resolve().parent.parent
#: Exact versions with their hashes, for every system and CPython from 3.10 on; without torch.
LOCK = ACTION / "locks" / "report.txt"
#: Runs the command line from folders that are named, and from the standard library.
START = "import sys; sys.path += [sys.argv.pop(1), sys.argv.pop(1)]; from ci_autotest.cli import main; main()"


def pip_install(python: Path, arguments: list[str], environ: Mapping[str, str]) -> None:
    """Install with the pip of ``python``; what builds the action's own package is pinned too."""
    pip = [str(python), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    pinned = {**environ, "PIP_BUILD_CONSTRAINT": str(ACTION / "constraints.txt")}
    if status := run_foreign([*pip, *arguments], pinned):
        message = f"pip ended with {status} for {shlex.join(arguments)}: its last lines above say why."
        raise StepError(message)


def make_environment(folder: Path, environ: Mapping[str, str]) -> Path:
    """Make an environment in ``folder`` that sees the caller's packages; return its interpreter."""
    if run_foreign([sys.executable, "-I", "-m", "venv", "--system-site-packages", str(folder)], environ):
        message = f"'{sys.executable}' cannot make an environment: use actions/setup-python before this."
        raise StepError(message)
    # `--system-site-packages` shows the base interpreter's only, and `-I` hides the user's own.
    of_venv = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    added = of_venv if sys.prefix != sys.base_prefix else [site.getusersitepackages()]
    there = [path for path in dict.fromkeys(added) if Path(path).is_dir()]
    # Not where pip builds a package apart: the caller's setuptools would stand before the one that was asked for.
    apart = "'pip-build-env-' in os.environ.get('PYTHONPATH', '')"
    lines = "".join(f"import os, site; {apart} or site.addsitedir({path!r})\n" for path in there)
    packages = Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(folder)}))
    (packages / "callers-packages.pth").write_text(lines, encoding="utf-8")
    return folder / "bin" / "python"


def present_packages(python: Path) -> list[str]:
    """Return the names of what ``python`` can import, by their metadata."""
    code = "import importlib.metadata as m; print(*{d.name for d in m.distributions()}, sep='\\n')"
    listed = subprocess.run([str(python), "-I", "-c", code], check=True, capture_output=True, text=True)
    return listed.stdout.split()


def install_tested(python: Path, folder: Path, environ: Mapping[str, str]) -> None:
    """Install the action in the tests' environment; torch only where there is none.

    What the caller asks for comes first and unpinned; the pins hold for the rest.
    """
    if asked := inputs.install_arguments(environ):
        pip_install(python, asked, environ)
    present = present_packages(python)
    pins = (ACTION / "constraints.txt").read_text("utf-8")
    constraints = folder / "constraints.txt"
    constraints.write_text(inputs.kept_constraints(pins, present), encoding="utf-8")
    extra = "" if "torch" in present else "[torch]"
    pip_install(python, ["-c", str(constraints), f"{ACTION}{extra}"], environ)


def install_publisher(python: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """Install what the publisher imports in a folder of its own, every file held against its hash."""
    packages = folder / "packages"
    hashed = ["--require-hashes", "--only-binary=:all:", "--no-deps", "--target", str(packages)]
    pip_install(python, [*hashed, "--requirement", str(LOCK)], environ)
    return packages


def sealed_paths(packages: Path) -> list[str]:
    """Return what the publisher is made of: its packages, its program, the interpreter and its library."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    library = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY") or "")
    settings = [folder / "pyvenv.cfg" for folder in interpreter().parents[:2]]
    found = [packages, ACTION / "action", ACTION / "ci_autotest", interpreter(), stdlib, library, *settings]
    return [str(path) for path in found if path.exists() and path.is_absolute()]


def library_folder() -> str:
    """Return the folder of the interpreter's own shared library, nothing where it has none: the loader may need it."""
    return str(sysconfig.get_config_var("LIBDIR") or "") if sysconfig.get_config_var("Py_ENABLE_SHARED") else ""


def checked_out(path: Path) -> str:
    """Return the commit of the checkout that ``path`` lies in, or nothing."""
    folder = next((each for each in (path, *path.parents) if each.is_dir()), Path.cwd())
    argv = ["git", "-c", "safe.directory=*", "-C", str(folder), "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def listed_folders() -> list[str]:
    """Return the folders in which a new name would change what the publisher imports.

    Beside the interpreter and above it, `pyvenv.cfg` and its like move the library; beside the library, `pythonXY.zip`
    comes before it; the action's checkout is on the import path.
    """
    found = [*interpreter().parents[:2], Path(sysconfig.get_path("stdlib")).parent, ACTION]
    return [str(path) for path in dict.fromkeys(found)]


def interpreter() -> Path:
    """Return the interpreter itself, not the link to it that an environment holds."""
    return Path(sys.executable).resolve()


def installed_version(python: Path) -> str:
    """Return the version of this package that ``python`` imports, or nothing."""
    code = "from ci_autotest.version import VERSION; print(VERSION)"
    done = subprocess.run([str(python), "-I", "-c", code], check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def isolated(python: str, scratch: str) -> list[str]:
    """Return the start of a command that takes its modules from where it is told, and no compiled file of another's."""
    return [python, "-I", "-S", "-B", "-X", f"pycache_prefix={scratch}"]


def publisher_argv(packages: str, scratch: str, argv: list[str]) -> list[str]:
    """Return the command that runs ``ci-autotest argv`` as the publisher."""
    return [*isolated(str(interpreter()), scratch), "-c", START, packages, str(ACTION), *argv]
