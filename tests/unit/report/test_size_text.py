"""The sizes that a run reached, in a sentence."""

from __future__ import annotations

from ci_autotest.report.size_text import size_sentence
from tests import report_samples as samples

ALL = {
    "one": "reached",
    "near_32": "reached",
    "near_128": "reached",
    "beyond_256": "reached",
    "beyond_1024": "few_cases",
}
SMALL = {"one": "reached", "near_32": "range", "near_128": "range", "beyond_256": "range", "beyond_1024": "few_cases"}


def test_size_sentence__tests_on_two_candidates__count_once_and_say_why_nothing_is_large():
    one = samples.outcome(sizes={"0.dim0": ALL, "1.dim0": SMALL})
    result = samples.run(results=(one, samples.outcome(candidate="compiled", sizes=one.sizes)))
    assert size_sentence(result) == (
        "sizes of 2 free dimensions: 1 in 2, near 32 in 1, near 128 in 1, "
        "beyond 256 in 1; none is beyond 1,024 (raise `--cases`)"
    )


def test_size_sentence__no_free_dimension__is_nothing():
    assert size_sentence(samples.run()) == ""
