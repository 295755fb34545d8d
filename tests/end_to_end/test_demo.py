"""What `make run` shows a newcomer: the shipped suite has no finding that nobody has read, and the planted fault is found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.candidates import ROOT


@pytest.mark.heavy
def test_demo__ends_with_0_and_names_the_repro():
    done = subprocess.run(
        [sys.executable, "examples/demo.py"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=3000
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "The planted fault was found" in done.stdout
