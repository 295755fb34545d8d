"""Packages of npm that tests need, exact versions, fetched once into ``.tools/``; no scripts of theirs are run."""

from __future__ import annotations

import fcntl
import subprocess
import tarfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Everything that is made here is ignored by git and may be deleted.
TOOLS = Path(__file__).resolve().parent.parent / ".tools"
INSTALL_S = 300


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make a folder and keep other processes of the tests out of it: the one that comes later finds the packages there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def installed(name: str, *packages: str) -> Path:
    """Install ``packages`` (``name@version``) in a folder called ``name``, unless they are there; return it.

    Raises:
        subprocess.CalledProcessError: npm does not get one of them.
    """
    folder = TOOLS / name
    stamp = folder / "packages.txt"
    wanted = "\n".join(packages)
    with alone(folder):
        if not stamp.exists() or stamp.read_text("utf-8") != wanted:
            options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix", str(folder)]
            subprocess.run(["npm", "install", *options, *packages], check=True, timeout=INSTALL_S)
            stamp.write_text(wanted, "utf-8")
    return folder / "node_modules"


def fetched(package: str, member: str) -> Path:
    """Return the file ``member`` of ``package``, such as ``@octokit/openapi@23.0.2``."""
    folder = TOOLS / package.removeprefix("@").replace("/", "-").replace("@", "-")
    path = folder / Path(member).name
    with alone(folder):
        if not path.exists():
            _fetch(package, member, path)
    return path


def _fetch(package: str, member: str, path: Path) -> None:
    packed = subprocess.run(
        ["npm", "pack", "--silent", package], cwd=path.parent, check=True, capture_output=True, text=True, timeout=300
    )
    archive = path.parent / packed.stdout.split()[-1]
    with tarfile.open(archive) as files:
        found = files.extractfile(f"package/{member}")
        assert found is not None
        # Renamed when it is whole: an interrupted run leaves no half of it.
        partial = path.with_suffix(".part")
        partial.write_bytes(found.read())
    partial.rename(path)
    archive.unlink()
