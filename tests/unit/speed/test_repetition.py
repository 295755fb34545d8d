"""A difference counts if enough fresh processes show it and none denies it."""

from __future__ import annotations

import pytest

from ci_autotest.speed.paired_ratio import combined, is_to_repeat
from ci_autotest.values.speed import Ratio, SpeedResult

RATIOS = {
    "slower": (1.4, 1.5, 1.6),
    "faster": (0.4, 0.5, 0.6),
    "same": (0.98, 1.0, 1.02),
    "cannot_tell": (0.7, 1.1, 1.9),
}


def result(verdict: str, **changes) -> SpeedResult:
    low, middle, high = RATIOS.get(verdict, (0, 0, 0))
    ratio = Ratio(low=low, median=middle, high=high, pairs=41) if verdict in RATIOS else None
    fields = {"test": "a.py::t", "candidate": "k", "case": 0, "phase": "forward", "verdict": verdict, "ratio": ratio}
    return SpeedResult(**(fields | changes))


@pytest.mark.parametrize(
    ("verdicts", "goes_on"),
    [
        (["same"], False),
        (["cannot_tell"], False),
        (["not_timed"], False),
        (["slower"], True),
        (["slower", "slower"], True),
        (["slower", "slower", "slower"], False),
        (["slower", "same"], False),
        (["slower", "faster"], False),
        (["slower", "cannot_tell", "slower"], True),
        (["slower", "cannot_tell", "slower", "cannot_tell"], True),
        (["slower", "cannot_tell", "slower", "cannot_tell", "cannot_tell"], False),
        (["misaligned"], True),
        (["crashed", "crashed", "crashed"], False),
    ],
)
def test_is_to_repeat__verdicts_so_far__decide(verdicts: list[str], goes_on: bool):
    assert is_to_repeat([[result(verdict)] for verdict in verdicts]) is goes_on


@pytest.mark.parametrize(
    ("changes", "goes_on"),
    [(["slower"], True), (["slower", "same"], False), (["slower"] * 3, False), (["faster"], False)],
)
def test_is_to_repeat__slower_than_in_the_baseline_alone__is_shown_again_too(changes: list[str], goes_on: bool):
    assert is_to_repeat([[result("same", change=change)] for change in changes]) is goes_on


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        (["slower", "slower", "slower"], "slower"),
        (["faster", "faster", "faster"], "faster"),
        (["slower", "cannot_tell", "slower", "slower"], "slower"),
        (["slower", "same"], "cannot_tell"),
        (["slower", "slower", "faster"], "cannot_tell"),
        (["misaligned", "misaligned", "misaligned"], "misaligned"),
        (["misaligned", "same"], "not_timed"),
        (["same"], "same"),
    ],
)
def test_combined__verdicts_of_fresh_processes__agree_or_cannot_tell(verdicts: list[str], verdict: str):
    (found,) = combined([[result(each)] for each in verdicts])
    assert found.verdict == verdict
    assert bool(found.reason) == (verdict not in verdicts)


def test_combined__one_that_cannot_tell__does_not_widen_the_interval():
    slow = result("slower")
    (found,) = combined([[slow], [result("cannot_tell")], [slow], [slow]])
    assert found.ratio == Ratio(low=1.4, median=1.5, high=1.6, pairs=123)


def test_combined__forward_and_backward__each_by_itself():
    first = [result("slower"), result("same", phase="backward")]
    found = combined([first, first, [result("same"), result("slower", phase="backward")]])
    assert [item.verdict for item in found] == ["cannot_tell", "same"]
