"""A row of ``tolerances`` says one thing; one that says nothing or two things is refused with what to write."""

from __future__ import annotations

import pytest

from ci_autotest.config import decode
from ci_autotest.errors import ConfigError


def rows(**keys):
    return {"tolerances": [{"operator": "torch.mm", "reason": "a test", **keys}]}


GOOD = {
    "bounds": {"rtol": 1e-3, "atol": 1e-5},
    "share": {"rtol": 1e-3, "atol": 1e-5, "share": 0.001},
    "relative norm": {"metric": "relative_norm", "limit": 1e-3},
    "cosine": {"metric": "cosine", "limit": 0.999},
    "signal to noise": {"metric": "snr_db", "limit": 40},
    "ulp": {"metric": "ulp", "limit": 8, "share": 0.01},
    "factor": {"factor": 4},
}


@pytest.mark.parametrize("keys", GOOD.values(), ids=GOOD)
def test_decode__row_that_says_one_thing__is_read(keys):
    (row,) = decode(rows(**keys), "autotest.yml").tolerances
    assert {key: getattr(row, key) for key in keys} == keys


WRONG = {
    "nothing": ({}, "allows nothing. Write rtol and atol, a metric with limit, or a factor"),
    "atol alone": ({"atol": 1e-3}, "has atol alone. Write both"),
    "no limit": ({"metric": "cosine"}, "has metric cosine without a limit. Write limit: 0.9999."),
    "limit of elements": ({"rtol": 0.1, "atol": 0.1, "limit": 1}, "has a limit, which metric elements does not use"),
    "bounds of a metric": ({"metric": "ulp", "limit": 1, "rtol": 0.1, "atol": 0.1}, "Remove rtol and atol."),
    "cosine of 2": ({"metric": "cosine", "limit": 2}, "has limit 2 for metric cosine. Give -1 to 1"),
    "negative ulp": ({"metric": "ulp", "limit": -1}, "has limit -1 for metric ulp. Give 0 or more, for example 8."),
    "infinite limit": ({"metric": "snr_db", "limit": float("inf")}, "has limit inf for metric snr_db. Give a number"),
    "share of all": ({"rtol": 0.1, "atol": 0.1, "share": 1}, "has share 1: it is a part of the elements."),
    "share of a norm": ({"metric": "cosine", "limit": 0.9, "share": 0.1}, "which metric cosine does not use"),
    "scale alone": ({"scale": "sqrt(K)", "factor": 2}, "has scale sqrt(K), which multiplies rtol and atol. Write both"),
    "factor and bounds": ({"factor": 2, "rtol": 0.1, "atol": 0.1}, "has a factor and other numbers"),
    "factor below 1": ({"factor": 0.5}, "has factor 0.5: it is how many times"),
    "metric": ({"metric": "l2", "limit": 1}, "allowed: elements, relative_norm, cosine, snr_db, ulp"),
}


@pytest.mark.parametrize(("keys", "message"), WRONG.values(), ids=WRONG)
def test_decode__row_that_says_nothing_or_two_things__is_refused(keys, message):
    with pytest.raises(ConfigError) as caught:
        decode(rows(**keys), "autotest.yml")
    assert message in str(caught.value)
    assert "tolerances[0]" in str(caught.value)
