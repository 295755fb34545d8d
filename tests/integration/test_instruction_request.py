"""Counting instructions: what cannot be counted is left out, and no failure of callgrind ends a run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ci_autotest.kinds import TorchCandidate
from ci_autotest.speed.instruction_request import Counted, count_instructions, has_callgrind

TORCH = Counted(candidate=TorchCandidate(name="torch"), folders=[])


@pytest.mark.parametrize("installed", [True, False])
def test_has_callgrind__valgrind_on_the_path__decides(tmp_path: Path, installed: bool):
    tool = tmp_path / ("valgrind" if installed else "other")
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert has_callgrind({"PATH": str(tmp_path)}) is installed


def test_count_instructions__program_that_is_none__has_no_counts():
    assert count_instructions(b"{", b"", TORCH, os.environ) is None


def test_count_instructions__no_valgrind__has_no_counts():
    environ = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    assert count_instructions(b"{}", b"", TORCH, environ) is None
