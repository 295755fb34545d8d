"""Packages of npm that tests need: installed once below a folder, exact versions, no scripts of theirs run."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: Everything that is made here is ignored by git and may be deleted.
TOOLS = Path(__file__).resolve().parent.parent / ".tools"
INSTALL_S = 300


def installed(name: str, *packages: str) -> Path:
    """Install ``packages`` (``name@version``) in a folder called ``name``, unless they are there; return it.

    Raises:
        subprocess.CalledProcessError: npm does not get one of them.
    """
    folder = TOOLS / name
    stamp = folder / "packages.txt"
    wanted = "\n".join(packages)
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix", str(folder)]
        subprocess.run(["npm", "install", *options, *packages], check=True, timeout=INSTALL_S)
        stamp.write_text(wanted, "utf-8")
    return folder / "node_modules"
