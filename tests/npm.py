"""Fetch one file of an npm package once, into ``.tools/``: what GitHub publishes is not copied into the project."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

TOOLS = Path(__file__).parents[1] / ".tools"


def fetched(package: str, member: str) -> Path:
    """Return the file ``member`` of ``package``, such as ``@octokit/openapi@23.0.2``."""
    folder = TOOLS / package.removeprefix("@").replace("/", "-").replace("@", "-")
    path = folder / Path(member).name
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True, timeout=300
    )
    archive = folder / packed.stdout.split()[-1]
    with tarfile.open(archive) as files:
        found = files.extractfile(f"package/{member}")
        assert found is not None
        # Renamed when it is whole: an interrupted run leaves no half of it.
        partial = path.with_suffix(".part")
        partial.write_bytes(found.read())
    partial.rename(path)
    archive.unlink()
    return path
