"""Times in the terminal, the comment and the summary; a hostile report shows nothing but text."""

from __future__ import annotations

import msgspec

from ci_autotest.report.comment_text import render_comment, render_summary
from ci_autotest.report.speed_text import speed_lines, speed_sentence, spoken
from ci_autotest.report.verdict_line import verdict
from ci_autotest.values.speed import Instructions, Ratio, SpeedResult
from tests import report_samples as samples


def timed(verdict: str = "slower", **changes) -> SpeedResult:
    fields = {
        "test": "autotests/a.py::softmax", "candidate": "kernels", "case": 0, "phase": "forward", "verdict": verdict,
        "operators": ("torch.softmax",), "inputs": ("float32[512, 512]",), "reference_s": 1.33e-4, "factor": 1.1,
        "ratio": Ratio(low=2.65, median=2.72, high=2.83, pairs=123),
    }  # fmt: skip
    return SpeedResult(**(fields | changes))


UNTIMED = timed("not_timed", ratio=None, reference_s=0.0, reason="its body registers hooks")
MISALIGNED = timed(
    "misaligned", ratio=None, reference_s=0.0, reason="torch.softmax is misaligned at these sizes (value)"
)


def test_spoken__slower__has_the_call_the_ratio_its_interval_and_the_time():
    assert spoken(timed()) == (
        "slower: forward of torch.softmax on float32[512, 512] takes 2.72 (2.65 to 2.83) times the reference, 133 us"
    )


def test_spoken__with_baseline_and_instructions__has_both():
    item = timed(
        against="original", before=Ratio(low=1.0, median=1.01, high=1.02, pairs=41), change="slower",
        instructions=Instructions(candidate=30, reference=10),
    )  # fmt: skip
    assert spoken(item).endswith(
        "times the graph before the pass, 133 us; 1.01 (1.00 to 1.02) in the baseline; 3.00 times the instructions"
    )


def test_speed_sentence__results_of_every_kind__are_counted():
    result = samples.run(speed=(timed(), timed("same"), timed("same"), timed("cannot_tell"), UNTIMED, MISALIGNED))
    assert speed_sentence(result) == (
        "speed: 1 misaligned at larger sizes, 1 slower, 2 same, 1 cannot tell, 1 not timed"
    )


def test_speed_lines__nothing_was_timed__are_none():
    assert (speed_lines(samples.run()), speed_sentence(samples.run())) == ([], "")


def test_speed_lines__reasons_of_what_was_not_timed__are_told_once_each():
    lines = speed_lines(samples.run(speed=(UNTIMED, UNTIMED)))
    assert lines == ["speed: 2 not timed", "  2 not timed: its body registers hooks"]


def test_comment__only_what_is_told__and_the_summary_all():
    result = samples.run(speed=(timed(), timed("same", inputs=("float32[64]",))))
    comment, summary = render_comment(result), render_summary(result)
    assert "**Speed: 1 slower, 1 same**" in comment
    assert ("float32\\[64\\]" in comment, "float32\\[64\\]" in summary) == (False, True)
    assert "2.72 (2.65 to 2.83) | 133 us | **slower** |" in comment


def test_comment__nothing_differs__has_the_counts_alone():
    comment = render_comment(samples.run(speed=(timed("same"),)))
    assert "**Speed: 1 same**" in comment
    assert "times the reference" not in comment


def test_comment__nothing_was_timed__says_nothing_of_speed():
    assert "peed" not in render_comment(samples.run()) + render_summary(samples.run())


def test_comment__hostile_names__are_text():
    hostile = "x|`</details><script>@org/team"
    item = timed(reason=hostile, inputs=(hostile,), operators=(hostile,), test=hostile, candidate=hostile)
    for text in (render_comment(samples.run(speed=(item,))), render_summary(samples.run(speed=(item,)))):
        assert "<script>" not in text.replace("`</details><script>", "")
        assert "</details><script>@" not in text.replace("`", "")


def test_verdict__wrong_at_larger_sizes__is_a_fault():
    assert verdict(samples.run(speed=(MISALIGNED,), exit_code=1)).startswith("✗ 1 call wrong at larger sizes")


def test_verdict__slower_where_that_counts__says_so():
    assert verdict(samples.run(speed=(timed(),), fail_on="slower", exit_code=1)) == "✗ 1 timed call slower"
    assert verdict(samples.run(speed=(timed(),))).startswith("✓ aligned")


def test_verdict__accepted_at_larger_sizes__is_a_known_difference():
    item = msgspec.structs.replace(MISALIGNED, known="rounds up")
    result = samples.run(speed=(item,))
    assert verdict(result).endswith("; 1 known difference")
    assert verdict(result).startswith("✓ aligned")
    assert speed_sentence(result) == "speed: 1 accepted at larger sizes"
    assert spoken(item) == (
        "accepted at larger sizes: torch.softmax is misaligned at these sizes (value); accepted: rounds up"
    )


def test_verdict__wrong_at_larger_sizes_in_the_baseline_too__is_no_fault_where_only_new_ones_fail():
    result = samples.run(speed=(msgspec.structs.replace(MISALIGNED, new=False),), new=(), fail_on="new")
    assert verdict(result).startswith("⚠ aligned where compared: ")
    assert verdict(result).endswith("; 1 call wrong at larger sizes, none new")
