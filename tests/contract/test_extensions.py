"""The tables by which optional parts hang on to the engine."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from ci_autotest.config import Compat
from ci_autotest.extensions import HARNESSES, REQUESTS, RUNNERS, STAGES, every_part, part, source_of
from ci_autotest.run import messages
from ci_autotest.values.result import LOADER_CANDIDATE


@pytest.mark.parametrize("path", every_part().values(), ids=every_part().keys())
def test_part__each_row__names_something(path: str):
    assert part(path)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        pytest.param("builtin:opinfo", "builtin:opinfo", id="name"),
        pytest.param("builtin:opinfo/fft", "builtin:opinfo", id="family"),
        pytest.param("builtin:opinfos", "", id="other"),
        pytest.param("builtin:suite/fft", "", id="suite"),
    ],
)
def test_source_of__file__is_the_source_that_it_belongs_to(file: str, name: str):
    source = source_of(file)
    assert (source.name if source is not None else "") == name


def test_tables__their_keys__are_those_of_the_engine():
    assert set(HARNESSES) == set(get_args(Compat))
    assert all(hasattr(messages, name) for name in REQUESTS)
    assert set(RUNNERS) == set(STAGES) == {LOADER_CANDIDATE}


def test_source__worker__names_the_class_of_its_tests():
    source = source_of("loader:mine:make")
    assert source is not None
    assert hasattr(part(source.worker), "find")


def test_engine__import_of_the_whole_of_it__brings_no_optional_part():
    engine = "import ci_autotest.commands.run, ci_autotest.run.worker.dispatch, ci_autotest.report.comment_text, sys"
    rooms = "call_capture compat opinfo power speed verify"
    shown = f"print([m for m in sys.modules for r in {rooms.split()} if m.startswith('ci_autotest.' + r)])"
    done = subprocess.run([sys.executable, "-c", f"{engine}; {shown}"], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
