"""Names are cut in the middle, sentences between words."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from ci_autotest.commands.line_width import shortened, wrapped


@pytest.mark.parametrize(
    ("name", "width", "found"),
    [
        ("softmax", 7, "softmax"),
        ("softmax_of_scores", 9, "soft…ores"),
        ("softmax_of_scores", 8, "sof…ores"),
        ("softmax", 1, "…"),
        ("", 5, ""),
    ],
)
def test_shortened__name__loses_its_middle(name: str, width: int, found: str):
    assert shortened(name, width) == found


@pytest.mark.parametrize("width", range(1, 12))
def test_shortened__wide_characters__are_never_wider(width: int):
    assert cell_len(shortened("行列の固有値分解", width)) <= width


def test_wrapped__sentence__is_broken_between_words_with_its_indent():
    text = "misaligned: torch.exp\n  blame: candidate; in float64 the candidate is farther"
    assert wrapped(text, 30) == ("misaligned: torch.exp\n  blame: candidate; in float64\n    the candidate is farther")


def test_wrapped__path_longer_than_a_line__stays_whole():
    path = "autotest-report/findings/softmax-3f2a1c/repro.py"
    assert path in wrapped(f"  replay: python {path}", 30).split("\n    ")


def test_wrapped__no_terminal__leaves_the_lines():
    assert wrapped("a " * 200, None) == "a " * 200
