"""A host's sandbox: a process that sees Python, this package, and the folders that its row names; nothing else.

Bubblewrap makes it: namespaces of its own for files, processes, users and the network. What runs in it can read no
file of the tests, write nothing that outlives it, reach no network, and see no other process. Where the system allows
no such namespaces there is no sandbox, and the candidate is unavailable.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What a host may learn from its environment; the rest could name files, tokens and addresses.
_KEPT_VARIABLES: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PATH", "TZ")
#: Of the system: libraries and programs, and what the dynamic linker reads.
_SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
)  # fmt: skip
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_TRIED_S: Final = 20
_NOBODY: Final = "65534"


#: The environment variable of a worker that holds ``SandboxServers`` as JSON.
SANDBOX_SERVERS: Final = "CI_AUTOTEST_SANDBOX_SERVERS"


class SandboxServers(msgspec.Struct, frozen=True, kw_only=True):
    """The servers from which a worker gets hosts in a sandbox, within milliseconds.

    Attributes:
        addresses: Path of the socket by the name of the candidate.
        memory_bytes: Memory that a host may hold; 0: no limit.
    """

    addresses: dict[str, str] = {}
    memory_bytes: int = 0


def sandbox_servers(environ: Mapping[str, str]) -> SandboxServers:
    """Return the servers that a process is told of; none if it is told of none."""
    given = environ.get(SANDBOX_SERVERS)
    return SandboxServers() if given is None else msgspec.json.decode(given, type=SandboxServers)


#: The environment variable of ``verify`` that holds a ``WarmSandbox`` as JSON.
WARM_SANDBOX: Final = "CI_AUTOTEST_WARM_SANDBOX"


class WarmSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox that a service has prepared for one verification.

    Attributes:
        folder: The folder of the verification; the sandbox sees the candidate's folder in it.
        variable: ``SandboxServers`` as JSON.
    """

    folder: str
    variable: str


def warm_sandbox(environ: Mapping[str, str]) -> WarmSandbox | None:
    """Return the sandbox that a process is given; ``None`` if there is none."""
    given = environ.get(WARM_SANDBOX)
    return None if given is None else msgspec.json.decode(given, type=WarmSandbox)


def kept_environ(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a sandbox's process: what is not in it cannot be read there, in ``/proc`` either.

    Args:
        environ: What it is taken from; ``None`` for this process's.
    """
    given = os.environ if environ is None else environ
    return {name: given[name] for name in _KEPT_VARIABLES if name in given}


def seen_folders(folders: Sequence[str], root: Path) -> tuple[str, ...]:
    """Return the folders that a candidate's row names, which are relative to the configuration's."""
    return tuple(str((root / folder).resolve()) for folder in folders)


def sandboxed(folders: Sequence[str]) -> list[str]:
    """Return the beginning of a command that runs in a sandbox; its environment must be ``kept_environ``.

    Args:
        folders: Folders that it sees besides Python and this package; it cannot write to them.

    Raises:
        UnavailableError: Bubblewrap is not installed, or the system allows no namespaces.
    """
    words = [_bubblewrap(), "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    # Without rights, a process that is root there could make no namespaces of its own (user_namespaces(7)).
    words += ["--uid", _NOBODY, "--gid", _NOBODY]
    for place in [*_SYSTEM, *_pythons(), str(_PACKAGE), *folders]:
        words += ["--ro-bind-try", place, place]
    home = "/tmp"  # noqa: S108 - the sandbox's own
    # The folders that it sees may lie below that one, so it comes first.
    places = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", home]
    words[1:1] = places
    return [*words, "--chdir", home, "--setenv", "HOME", home, "--setenv", "USER", "nobody"]


def _pythons() -> list[str]:
    """Return the folders of this interpreter and of its packages."""
    paths = sysconfig.get_paths()
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, paths["stdlib"], paths["purelib"], paths["platlib"]]
    found += site.getsitepackages()
    return list(dict.fromkeys(str(Path(each).resolve()) for each in found) | dict.fromkeys(found))


@cache
def _bubblewrap() -> str:
    """Return the path of bubblewrap, after it has made a sandbox once."""
    path = shutil.which("bwrap")
    if path is None:
        message = "a sandbox needs bubblewrap, which is not installed. Install it: apt-get install bubblewrap"
        raise UnavailableError(message)
    words = [path, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TRIED_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"bubblewrap cannot be run here ({error})."
        raise UnavailableError(message) from error
    if done.returncode:
        why = " ".join(done.stderr.split())[:200] or f"status {done.returncode}"
        message = (
            f"this system allows no sandbox ({why}). Unprivileged user namespaces are needed: on Ubuntu, "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` allows them; in a container, run it with "
            "--security-opt seccomp=unconfined, or on the host itself."
        )
        raise UnavailableError(message)
    return path
