"""What a run says while it goes on, where there is no terminal; tests/end_to_end/test_terminal.py has the other half."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ci_autotest.commands.progress import Progress, _bar_line
from ci_autotest.values.amounts import time_text


def test_progress__no_terminal__plain_lines_of_the_end_and_of_what_is_said():
    stream = io.StringIO()
    progress = Progress(stream, is_live=False)
    with progress.shown():
        progress.stage("importing torch")
        progress.begin(4)
        progress.update("a.py::one", 2, 0)
        progress.say("misaligned: torch.exp")
        progress.update("a.py::two", 4, 1)
    said, last = stream.getvalue().splitlines()
    assert said == "misaligned: torch.exp"
    assert last.startswith("4 / 4 cases, ")
    assert last.endswith(" cases/s, 1 suspected, about 5 s left  a.py::two")


def test_progress__quiet__says_nothing_and_echoes():
    stream = io.StringIO()
    progress = Progress(stream, is_live=True, is_quiet=True)
    with progress.shown():
        progress.stage("importing torch")
        progress.begin(1)
        progress.update("a.py::one", 1, 1)
        progress.say("misaligned: torch.exp")
        progress.echo(b"printed\xff\n")
    assert stream.getvalue() == "printed\ufffd\n"


def test_wait__case_that_takes_long__is_in_a_line_every_few_seconds(monkeypatch):
    stream, now = io.StringIO(), [100.0]
    monkeypatch.setattr("ci_autotest.commands.progress.time.monotonic", lambda: now[0])
    progress = Progress(stream, is_live=False)
    progress.begin(4)
    for _ in range(40):
        now[0] += 1.0
        progress.wait("case 3 of a.py::one on compiled for 9 s", 1, 0)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert all(line.endswith("  case 3 of a.py::one on compiled for 9 s") for line in lines)


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 120, 200])
def test_bar_line__any_width__is_one_line_that_fits(width: int):
    stream = io.StringIO()
    texts = "12,345 / 1,000,000 cases", "1,234 cases/s, 12 suspected, 13 min 20 s left", "autotests/a.py::" + "x" * 90
    Console(file=stream, width=width).print(_bar_line(12_345, 1_000_000, texts, width))
    (line,) = stream.getvalue().splitlines()
    assert len(line) <= width


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3_599, "59 min 59 s"), (7_300, "2 h 1 min")]
)
def test_time_text__seconds__are_in_units_that_one_reads(seconds: float, text: str):
    assert time_text(seconds) == text


def test_stage__no_terminal__is_a_line_once_nothing_was_written_for_a_while(monkeypatch):
    stream, now = io.StringIO(), [100.0]
    monkeypatch.setattr("ci_autotest.commands.progress.time.monotonic", lambda: now[0])
    progress = Progress(stream, is_live=False)
    for at, text in ((101, "confirming"), (116, "shrinking: trial 3"), (117, "shrinking: trial 4"), (140, "verifying")):
        now[0] = at
        progress.stage(text)
    assert stream.getvalue().splitlines() == ["shrinking: trial 3", "verifying"]
