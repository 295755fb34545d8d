"""A repro of OneFlow's ranks starts them itself: what each of them does becomes one exit status. The ranks are a fake's."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Recording, Ref, Step, TensorSpec
from ci_autotest.program.json_values import plain_program
from ci_autotest.program.repro.host_script import host_repro_text

FOLDER = str(Path(__file__).parent.parent / "fakes" / "oneflow_ranks")
PLAIN = TensorSpec("float32", (2,), (1,), 0, 2)
SPEC = replace(PLAIN, distribution=Distribution((2,), ("Shard(0)",)))
INPUT = np.array([0.5, 2.0], np.float32)
RESULTS = {"cos": np.cos, "sin": np.sin, "abs": np.abs, "exp": np.exp, "sign": np.sign, "square": np.square}


def run(name: str, kind: str, folder: Path) -> tuple[int, str]:
    """Run the repro of a finding of one call in an empty folder; return its status and what it printed last."""
    steps = (
        Step(PLACEHOLDER, "t0", (SPEC,), (), "x"),
        Step(CALL_FUNCTION, f"oneflow.{name}", (Ref(0),), (), "y"),
        Step(OUTPUT, "output", (Ref(1),), (), "output"),
    )
    program = Program((), steps)
    host = {
        "module": "oneflow", "version": "0.9.0", "python": sys.executable, "on": "3.11",
        "program": plain_program(program), "moved": [0, 1, 2], "parameters": [], "ranks": 2,
    }  # fmt: skip
    tensors = {"t0": struct.pack("<2f", *INPUT), "output_0": RESULTS[name](INPUT).astype(np.float32).tobytes()}
    recording = Recording(program, tensors, {"host": host, "torch": "2.13"}, {"output_0": PLAIN})
    details = {
        "title": "misaligned", "lines": ["a line"], "kind": kind, "rtol": 1e-5, "atol": 1e-6, "check_dtype": True,
        "has_backward": False, "strictness": "tolerance", "timeout_s": 60, "folders": [], "versions": "a fake",
    }  # fmt: skip
    script = folder / "repro.py"
    script.write_text(host_repro_text(recording, details))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": FOLDER},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (done.stdout.splitlines() or [done.stderr])[-1]


@pytest.mark.parametrize(
    ("name", "kind", "status", "last"),
    [
        ("cos", "value", 0, "fixed: nothing differs from the reference any more"),
        ("sin", "rank", 1, "misaligned: rank 0 ended with status 0, rank 1 ended with status 1"),
        ("abs", "rank", 1, "misaligned: rank 0 ended with status 0, rank 1 ended with status 1"),
        ("exp", "crash", 1, "misaligned: rank 0 ended with status 0, rank 1 ended with status -9"),
        ("square", "rank", 1, "misaligned: rank 0 ended with status 0, rank 1 ended with status 0 before its end"),
        ("sign", "error", 1, "misaligned: the candidate is not fixed"),
    ],
)
def test_repro__what_the_ranks_do__is_one_status(name: str, kind: str, status: int, last: str, tmp_path: Path):
    assert run(name, kind, tmp_path) == (status, last)
