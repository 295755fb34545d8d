"""The row that accepts a finding: the configuration reads it, and it accepts that finding and no other."""

from __future__ import annotations

from datetime import date

import msgspec
import pytest
import yaml

from ci_autotest.config.known_differences import apply_known
from ci_autotest.config.values import Config
from ci_autotest.report.finding_text import known_row
from tests import report_samples as samples


@pytest.mark.parametrize(
    "candidate", ["kernels", "on", "null", "torch.compile", "a b: #c", "é ☃", "1e3", '"', "- x", "{"]
)
def test_known_row__pasted__accepts_the_finding_and_no_other(candidate: str) -> None:
    finding = samples.finding(candidate=candidate)
    others = [samples.finding(candidate="other"), samples.finding(candidate=candidate, kind="dtype")]

    config = msgspec.convert(yaml.safe_load(known_row(finding)), Config)

    found = apply_known((finding, *others), config.known, date(2026, 11, 23))
    assert [item.known for item in found] == ["say why this is acceptable", None, None]


@pytest.mark.parametrize(
    "changes",
    [
        {"known": "half"}, {"outcome": "flaky"}, {"blame": "reference"}, {"operator": ""}, {"operator": "x" * 201},
        {"candidate": "a\nknown: []"}, {"operator": "\u202e"},
    ],
)  # fmt: skip
def test_known_row__counts_for_nothing_or_no_name__is_none(changes: dict[str, str]) -> None:
    assert known_row(samples.finding(**changes)) == ""
