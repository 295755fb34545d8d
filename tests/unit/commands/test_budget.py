"""When cases end, and what is kept for what they found."""

from __future__ import annotations

import pytest

from ci_autotest.commands.budget import GRACE_S, Budget


@pytest.mark.parametrize(
    ("now", "total_s", "has_found", "is_over"),
    [
        (1e9, None, True, False),
        (99.0, 100.0, False, False),
        (101.0, 100.0, False, True),
        (74.0, 100.0, True, False),
        (76.0, 100.0, True, True),
        (14.0, 30.0, True, False),
        (16.0, 30.0, True, True),
        (6.0, 10.0, True, True),
        (3600 - 301, 3600.0, True, False),
        (3600 - 299, 3600.0, True, True),
    ],
)
def test_budget__cases__end_in_time_for_what_was_found(now, total_s, has_found, is_over):
    assert Budget(lambda: now, 0.0, total_s).is_over(has_found=has_found) is is_over


def test_budget__findings__end_shortly_after_it():
    assert Budget(lambda: 0.0, 5.0, 100.0).deadline == 105.0 + GRACE_S
    assert Budget(lambda: 0.0, 5.0, None).deadline is None
