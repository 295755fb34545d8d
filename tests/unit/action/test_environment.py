"""What the publisher is made of: nothing that Python imports for it lies outside what is hashed or listed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from action import environment

ROOT = Path(__file__).resolve().parents[3]
#: Prints the files of every module, and where further ones would be looked for.
IMPORTED = (
    "import json, sys; sys.path += sys.argv[1:3]; import click, msgspec, requests, ssl, ci_autotest.github.comment\n"
    "print(json.dumps([[m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)], sys.path]))"
)


def test_publisher__what_it_imports__is_hashed_or_would_be_seen(tmp_path: Path):
    packages = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    argv = environment.isolated(str(environment.interpreter()), str(tmp_path))
    done = subprocess.run(
        [*argv, "-c", IMPORTED, str(packages), str(ROOT)],
        env={"PATH": os.environ["PATH"]}, check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    files, folders = json.loads(done.stdout)
    sealed = [Path(path) for path in environment.sealed_paths(packages)]
    assert [file for file in files if not any(path in (Path(file), *Path(file).parents) for path in sealed)] == []
    listed = {Path(folder) for folder in environment.listed_folders()}
    open_to_new = [Path(folder) for folder in folders if folder]
    assert [
        str(folder)
        for folder in open_to_new
        if not any(path in (folder, *folder.parents) for path in sealed) and not {folder, folder.parent} & listed
    ] == []


def test_sealed_paths__of_this_interpreter__has_its_library_and_itself(tmp_path: Path):
    sealed = environment.sealed_paths(tmp_path)
    assert str(tmp_path) in sealed
    assert str(Path(sys.executable).resolve()) in sealed
    assert str(Path(json.__file__).parents[1]) in sealed
