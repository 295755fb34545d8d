"""Each finding of the soak about torch is shown by its program, in torch alone, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import torch

from benchmarks.soak.reading import PRELUDE, rows
from tests.tables import thinned

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="what was found was found in torch 2.13"),
]


@pytest.mark.parametrize("row", thinned(rows(), 3), ids=lambda row: row.what)
def test_repro__shows_what_was_accused(row):
    script = [sys.executable, "-I", "-W", "ignore", "-c", PRELUDE + row.repro]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (-signal.SIGSEGV if row.dies else 0), done.stderr
