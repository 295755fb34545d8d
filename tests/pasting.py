"""A shown program runs in this process as it does for somebody who pastes it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from ci_autotest.program.serialize import encode_tensors

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ci_autotest.program.recording import Recording

_FILE = re.compile(r"autotest-report/[\w./-]+/tensors\.safetensors")


def reported(recording: Recording) -> Recording:
    """Return a recording as a run notes it with the usual output folder."""
    return replace(recording, note=msgspec.structs.replace(recording.note, output="autotest-report"))


def write_tensors(text: str, recording: Recording, folder: Path) -> None:
    """Write the file from which a program reads its large tensors, if it reads one."""
    for name in _FILE.findall(text):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encode_tensors(recording))


def paste(text: str, recording: Recording, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a program from where the run was started, beside the report's folder; return its names."""
    write_tensors(text, recording, folder)
    monkeypatch.chdir(folder)
    scope: dict[str, Any] = {"__name__": "pasted"}
    exec(compile(text, "pasted", "exec"), scope)  # noqa: S102 - what is under test
    return scope
