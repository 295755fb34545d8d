"""The request to count instructions, and the process that answers it; both sides of the pipe read this."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.kinds import AnyCandidate
from ci_autotest.values.speed import Instructions

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM, TENSORS, CANDIDATE = "program.json", "tensors.safetensors", "candidate.json"
#: Seconds for both sides: callgrind takes most of a minute to import torch.
_TIMEOUT_S: Final = 900.0
_COUNTER: Final = "ci_autotest.speed.instruction_counts"


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What makes the candidate whose instructions are counted."""

    candidate: AnyCandidate
    folders: list[str]


def has_callgrind(environ: Mapping[str, str]) -> bool:
    """Whether valgrind is installed."""
    return shutil.which("valgrind", path=environ.get("PATH")) is not None


def count_instructions(
    program: bytes, tensors: bytes, counted: Counted, environ: Mapping[str, str]
) -> Instructions | None:
    """Return the instructions of one call of both sides; ``None`` if callgrind cannot run this program."""
    with tempfile.TemporaryDirectory() as folder:
        content = {PROGRAM: program, TENSORS: tensors, CANDIDATE: msgspec.json.encode(counted)}
        for name, data in content.items():
            (Path(folder) / name).write_bytes(data)
        try:
            done = subprocess.run(
                [sys.executable, "-m", _COUNTER, folder],
                env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_S, check=True, cwd=folder,
            )  # fmt: skip
            # The candidate's own output may come first.
            return msgspec.json.decode(done.stdout.splitlines()[-1], type=Instructions)
        except (OSError, subprocess.SubprocessError, msgspec.MsgspecError, IndexError):
            return None
