"""Installation: an environment for the tests, and a separate folder with the packages of the publisher.

The action itself builds nothing: its requirements are wheels, and its own package is copied from its checkout.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from action.errors import StepError
from action.foreign import run_recorded
from action.outputs import workflow_command
from action.runner import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from action.step_arguments import InstallArguments

ACTION = Path(__file__).resolve().parent.parent
#: Exact versions and hashes of the publisher's packages, for every system and CPython from 3.10 on.
LOCK = ACTION / "locks" / "report.txt"
PINS = ACTION / "constraints.txt"
#: Index of PyTorch's builds for machines without a GPU. Their versions end with `+cpu`, so pip takes no other.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: Device files of GPUs that torch's default build can use: of NVIDIA's driver, and of Windows' driver under WSL.
GPU_FILES = ("nvidia[0-9]*", "dxg")
#: Device file of AMD's driver, for which PyTorch has builds on an index of their own.
ROCM_FILE = "kfd"
#: pip's variables that say from where packages come and how they are fetched, and not which ones or to where.
SOURCES = frozenset({
    "PIP_CACHE_DIR", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE", "PIP_DEFAULT_TIMEOUT", "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_KEYRING_PROVIDER", "PIP_NO_CACHE_DIR", "PIP_NO_INDEX", "PIP_NO_PROXY_ENV",
    "PIP_PROXY", "PIP_RESUME_RETRIES", "PIP_RETRIES", "PIP_TIMEOUT", "PIP_TRUSTED_HOST", "PIP_USE_DEPRECATED",
    "PIP_USE_FEATURE",
})  # fmt: skip
#: Last lines of pip's output that are shown where it fails.
SHOWN_LINES = 5
#: Program that runs the command line; it imports from two given folders and the standard library only.
START = "import sys; sys.path += [sys.argv.pop(1), sys.argv.pop(1)]; from ci_autotest.cli import main; main()"


def pip_install(python: Path, arguments: list[str], environ: Mapping[str, str]) -> None:
    """Install with the pip of ``python``."""
    # Most modules are never imported, so compiling all of them now would cost more than it saves.
    pip(python, "install", ["--no-compile", *arguments], environ)


def pip(python: Path, command: str, arguments: list[str], environ: Mapping[str, str]) -> None:
    """Run a pip command.

    Raises:
        StepError: pip failed.
    """
    argv = [str(python), "-I", "-m", "pip", command, "--no-input", "--disable-pip-version-check", *arguments]
    ended = run_recorded(argv, environ)
    if ended.status:
        last = "\n".join(ended.output.strip().splitlines()[-SHOWN_LINES:])
        message = f"pip ended with {ended.status} for {shlex.join(arguments)}: {last}"
        raise StepError(message)


def with_cache(environ: Mapping[str, str], folder: str) -> Mapping[str, str]:
    """Return the environment with the cache folder of this job, if it has one of its own."""
    return {**environ, "PIP_CACHE_DIR": folder} if folder else environ


def without_pip_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without options for pip, which are meant for what the caller installs.

    Images of frameworks set ``PIP_CONSTRAINT``, others ``PIP_USER`` or ``PIP_REQUIRE_HASHES``.
    """
    return {name: value for name, value in environ.items() if not name.startswith("PIP_") or name in SOURCES}


def make_environment(folder: Path, environ: Mapping[str, str]) -> Path:
    """Create a virtual environment in ``folder`` that also imports the caller's packages; return its interpreter."""
    message = f"'{sys.executable}' cannot create a virtual environment: use actions/setup-python before this action."
    python = folder / "bin" / "python"
    options = ["--system-site-packages", "--without-pip"]
    if run_recorded([sys.executable, "-I", "-m", "venv", *options, str(folder)], environ).status:
        raise StepError(message)
    # `--system-site-packages` adds the packages of the base interpreter only, and `-I` hides those of the user.
    of_venv = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    added = of_venv if sys.prefix != sys.base_prefix else [site.getusersitepackages()]
    existing = [path for path in dict.fromkeys(added) if Path(path).is_dir()]
    # Not in pip's isolated builds: there, the caller's setuptools would hide the version that the build requires.
    is_build = "'pip-build-env-' in os.environ.get('PYTHONPATH', '')"
    lines = "".join(f"import os, site; {is_build} or site.addsitedir({path!r})\n" for path in existing)
    (site_packages(folder) / "callers-packages.pth").write_text(lines, encoding="utf-8")
    # The caller's pip can install here, too; ensurepip would take longer than the installation itself.
    has_pip = subprocess.run([str(python), "-I", "-c", "import pip"], check=False, capture_output=True).returncode == 0
    if not has_pip and run_recorded([str(python), "-I", "-m", "ensurepip"], environ).status:
        raise StepError(message)
    return python


def site_packages(folder: Path) -> Path:
    """Return the folder of the packages of a virtual environment."""
    return Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(folder)}))


def present_packages(python: Path) -> list[str]:
    """Return the names of the packages that ``python`` can import, from their metadata."""
    code = "import importlib.metadata as m; print(*{d.name for d in m.distributions()}, sep='\\n')"
    listed = subprocess.run([str(python), "-I", "-c", code], check=True, capture_output=True, text=True)
    return listed.stdout.split()


def install_package(python: Path, torch: str, environ: Mapping[str, str]) -> None:
    """Install the action in the tests' environment, and torch if the environment has none.

    The pins do not apply to packages that are already installed, such as those of the input ``install``.
    """
    environ = without_pip_options(environ)
    *cpu, needed = pip_runs(python, present_packages(python), torch)
    for arguments in cpu:
        install_torch_cpu(python, arguments, torch, environ)
    pip_install(python, needed, environ)
    target = site_packages(python.parents[1]) / "ci_autotest"
    shutil.copytree(ACTION / "ci_autotest", target, ignore=shutil.ignore_patterns("__pycache__"))


def fill_cache(python: Path, torch: str, names: list[str], environ: Mapping[str, str]) -> bool:
    """Download into the cache what `install_package` will need; return whether the cache has all of it.

    Only wheels are downloaded, so that nothing is built: the cache is saved before code of the checkout has run.
    Packages that the input ``install`` names are left to it.
    """
    environ = without_pip_options(environ)
    with tempfile.TemporaryDirectory(dir=python.parents[2]) as folder:
        wheels = ["--dest", folder, "--find-links", folder, "--only-binary=:all:"]
        try:
            for arguments in pip_runs(python, [*present_packages(python), *names], torch):
                pip(python, "download", [*wheels, *arguments], environ)
        except StepError:
            return False  # If it matters, the step `install` fails in the same way and reports it.
    return True


def pip_runs(python: Path, present: list[str], torch: str) -> list[list[str]]:
    """Return pip's arguments, run by run: for PyTorch's CPU build if it is needed, then for everything else.

    Requirements that are not ``present`` are pinned.
    """
    build = torch_build(torch, present)
    constraints = python.parents[2] / "constraints.txt"
    constraints.write_text(kept_constraints(PINS.read_text("utf-8"), present), encoding="utf-8")
    needed = ["-c", str(constraints), *requirements(), *([] if build == "present" else ["torch"])]
    # Its requirements come from the usual index.
    cpu = ["--index-url", TORCH_CPU_INDEX, "--no-deps", f"{torch_pin()}+cpu"]
    return [cpu, needed] if build == "cpu" else [needed]


def kept_constraints(constraints: str, present: Iterable[str]) -> str:
    """Return ``constraints`` without the packages that are ``present``, so that pip does not replace them."""

    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    names = {canonical(name) for name in present}
    lines = [line for line in constraints.splitlines() if line.strip() and not line.startswith("#")]
    kept = [line for line in lines if canonical(re.split(r"[=<>!~;\s\[]", line, maxsplit=1)[0]) not in names]
    return "".join(f"{line}\n" for line in kept)


def requirements() -> list[str]:
    """Return the package's requirements without torch."""
    # The standard library has no TOML reader before 3.11; an array of strings is the same in TOML and in Python.
    project = (ACTION / "pyproject.toml").read_text("utf-8")
    found = re.search(r"^dependencies = (\[.*?^\])", project, re.MULTILINE | re.DOTALL)
    assert found is not None  # noqa: S101 - a test holds the file to it
    return [str(each) for each in ast.literal_eval(found[1])]


def torch_choice(asked: str, device: str, devices: Path = Path("/dev")) -> str:
    """Return ``default`` in place of ``auto`` if the machine has a GPU or the tests need one."""
    has_gpu = any(True for pattern in GPU_FILES for _ in devices.glob(pattern))
    return "default" if asked == "auto" and (has_gpu or device == "cuda") else asked


def torch_build(torch: str, present: list[str]) -> str:
    """Return which torch the tests use: the one that is ``present``, PyTorch's ``cpu`` build or pip's ``default``."""
    return "present" if "torch" in present else "default" if torch == "default" else "cpu"


def rocm_warning(torch: str, devices: Path = Path("/dev")) -> str:
    """Return a warning that a machine with an AMD GPU gets the CPU build; empty if it has none, or asks for that."""
    if torch != "auto" or not (devices / ROCM_FILE).exists():
        return ""
    return (
        "this machine has an AMD GPU, and PyTorch's CPU build is installed. For ROCm, name PyTorch's build of it in "
        "the input 'install', or use an image that has it; `options: --torch=cpu` says that the CPU is what you want."
    )


def install_torch_cpu(python: Path, arguments: list[str], torch: str, environ: Mapping[str, str]) -> None:
    """Install torch from the index of its CPU builds.

    If the index is not available and ``torch`` is not ``cpu``, the build that pip chooses is installed later.
    """
    if warning := rocm_warning(torch):
        say(workflow_command("warning", warning))
    try:
        pip_install(python, arguments, environ)
    except StepError:
        if torch == "cpu":
            raise
        message = (
            f"the CPU build of torch is not available from {TORCH_CPU_INDEX}, so pip installs the build of its own "
            "index. Write `--torch=default` into the input 'options' if that is what you want."
        )
        say(workflow_command("warning", message))


def torch_pin() -> str:
    """Return the pinned requirement of torch."""
    pin = re.search(r"^torch==\S+$", PINS.read_text("utf-8"), re.MULTILINE)
    assert pin is not None  # noqa: S101 - a test holds the file to it
    return pin[0]


def cache_key(installation: InstallArguments, environ: Mapping[str, str]) -> str:
    """Return the key of the cache with pip's downloads; it changes with everything that changes them.

    It is empty on a self-hosted runner, which has pip's own cache, and for what publishes, which takes nothing from
    another job.
    """
    if installation.runtime != "python" or environ.get("RUNNER_ENVIRONMENT") != "github-hosted":
        return ""
    present = [*present_packages(Path(sys.executable)), *installation.names]
    build = torch_build(installation.torch, present)
    parts = [sys.version, build, PINS.read_text("utf-8"), LOCK.read_text("utf-8")]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"ci-autotest-{sys.platform}-{platform.machine()}-torch-{build}-{digest[:16]}"


def install_publisher(python: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """Install the publisher's packages in a folder of their own; pip checks the hash of every file."""
    packages = folder / "packages"
    hashed = ["--require-hashes", "--only-binary=:all:", "--no-deps", "--target", str(packages)]
    pip_install(python, [*hashed, "--requirement", str(LOCK)], without_pip_options(environ))
    return packages


def checked_out(path: Path) -> str:
    """Return the commit of the checkout that ``path`` is in; empty if it is in none."""
    folder = next((each for each in (path, *path.parents) if each.is_dir()), Path.cwd())
    argv = ["git", "-c", "safe.directory=*", "-C", str(folder), "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def installed_version(python: Path) -> str:
    """Return the version of this package that ``python`` imports; empty if it has none."""
    code = "from ci_autotest.version import VERSION; print(VERSION)"
    done = subprocess.run([str(python), "-I", "-c", code], check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def publisher_argv(packages: str, scratch: str, argv: list[str]) -> list[str]:
    """Return the command that runs ``ci-autotest argv`` as the publisher.

    It imports neither site packages nor compiled files that others have written, and its interpreter is no virtual
    environment's link.
    """
    python = [str(Path(sys.executable).resolve()), "-I", "-S", "-B", "-X", f"pycache_prefix={scratch}"]
    return [*python, "-c", START, packages, str(ACTION), *argv]
