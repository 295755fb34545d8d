"""Metrics of a whole tensor: what is within a limit, what is not, and that no limit covers what is not finite."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.alignment.compare import compare
from ci_autotest.alignment.elements import close, metric_of, mismatches
from ci_autotest.alignment.tolerance_rules import Rules, ToleranceRow
from ci_autotest.backends.snapshots import observed
from ci_autotest.values.tolerance import Tolerance
from tests.engine import run_test, substitute
from tests.quality.low_precision import drawn

NAN, INF = float("nan"), float("inf")
ONES = torch.ones(1000)


def tolerance(metric, limit=0.0, share=0.0, bound=0.0):
    return Tolerance(bound, bound, "tolerance", metric, limit, share)


def with_first(value, count=1):
    found = ONES.clone()
    found[:count] = value
    return found


ROWS = {
    "relative norm, met": (ONES * 1.0009, ONES, tolerance("relative_norm", 1e-3), True),
    "relative norm, not met": (ONES * 1.0011, ONES, tolerance("relative_norm", 1e-3), False),
    "relative norm, one element": (with_first(1.03), ONES, tolerance("relative_norm", 1e-3), True),
    "relative norm, zero reference": (ONES * 1e-30, ONES * 0, tolerance("relative_norm", 1e-3), False),
    "cosine, other length": (ONES * 3, ONES, tolerance("cosine", 0.9999), True),
    "cosine, other direction": (with_first(-1, 10), ONES, tolerance("cosine", 0.9999), False),
    "cosine, zeros": (ONES * 0, ONES * 0, tolerance("cosine", 0.9999), True),
    "cosine, zero candidate": (ONES * 0, ONES, tolerance("cosine", 0.9), False),
    "signal to noise, met": (ONES * 1.009, ONES, tolerance("snr_db", 40), True),
    "signal to noise, not met": (ONES * 1.011, ONES, tolerance("snr_db", 40), False),
    "share, met": (with_first(9), ONES, tolerance("elements", share=0.001, bound=1e-6), True),
    "share, not met": (with_first(9, 2), ONES, tolerance("elements", share=0.001, bound=1e-6), False),
    "ulp, met": (ONES + 8 * 2.0**-23, ONES, tolerance("ulp", 8), True),
    "ulp, not met": (ONES + 9 * 2.0**-23, ONES, tolerance("ulp", 8), False),
    "ulp, share": (with_first(2), ONES, tolerance("ulp", 8, share=0.001), True),
    "ulp, complex": (torch.tensor([1 + 1.01j]), torch.tensor([1 + 1j]), tolerance("ulp", 8), False),
    "NaN within the share": (with_first(NAN), ONES, tolerance("elements", share=0.01, bound=1e-6), False),
    "infinity for a number": (with_first(INF), ONES, tolerance("cosine", 0.1), False),
    "infinities of two signs": (with_first(-INF), with_first(INF), tolerance("relative_norm", 1.0), False),
    "NaN with NaN": (with_first(NAN), with_first(NAN), tolerance("relative_norm", 1e-3), True),
    "empty": (torch.ones(0), torch.ones(0), tolerance("relative_norm", 1e-3), True),
    "integers": (torch.tensor([100, 101]), torch.tensor([100, 100]), tolerance("relative_norm", 0.01), True),
    "half": (ONES.half() * 1.01, ONES.half(), tolerance("relative_norm", 1e-3), False),
    "large numbers": (torch.tensor([3e200, 1e200]).double(), torch.tensor([3e200] * 2).double(), tolerance("cosine", 0.9), True),
}  # fmt: skip


@pytest.mark.parametrize(("candidate", "reference", "how", "is_met"), ROWS.values(), ids=ROWS)
def test_close__metric__is_met_or_not_and_names_elements(candidate, reference, how, is_met):
    bad = mismatches(candidate, reference, how)
    found = compare(observed(candidate), observed(reference), how)
    assert (close(candidate, reference, how), not bad.any(), found is None) == (is_met, is_met, is_met)
    if found is not None:
        assert found.difference is not None
        assert found.difference.mismatched == int(bad.sum()) > 0
        assert found.detail == metric_of(candidate, reference, how).text


@pytest.mark.parametrize(
    ("candidate", "how"),
    [
        (ONES * 1.0011, tolerance("relative_norm", 1e-3)),
        (with_first(-1, 10), tolerance("cosine", 0.9999)),
        (ONES * 1.011, tolerance("snr_db", 40)),
    ],
    ids=["relative norm", "cosine", "signal to noise"],
)
def test_compare__limit_not_met__an_element_exceeds_the_bound_that_a_repro_checks(candidate, how):
    found = compare(observed(candidate), observed(ONES), how)
    assert found is not None
    assert found.difference is not None
    assert not torch.allclose(candidate, ONES, rtol=found.difference.rtol, atol=found.difference.atol)


def row(**keys):
    return Rules(rows=(ToleranceRow("torch.mm", **{"rtol": None, "atol": None, **keys}),))


@pytest.mark.parametrize(
    ("rules", "outcome"),
    [
        (Rules(), "misaligned"),
        (row(metric="relative_norm", limit=1e-2), "aligned"),
        (row(metric="relative_norm", limit=1e-4), "misaligned"),
        (row(metric="cosine", limit=0.9999), "aligned"),
        (row(metric="snr_db", limit=80.0), "misaligned"),
    ],
    ids=["default", "loose norm", "tight norm", "cosine", "signal to noise"],
)
def test_run_test__kernel_off_by_a_thousandth__goes_by_the_row(rules, outcome):
    def product():
        import ci_autotest  # noqa: PLC0415 - recorded torch

        return ci_autotest.torch.mm(drawn(4, 8, dtype="float32"), drawn(8, 3, dtype="float32"))

    kernel = substitute(mm=lambda a, b: torch.einsum("ij,jk->ik", a, b) * 1.001)
    found = run_test(product, kernel, 6, rules)
    assert {(item.outcome, item.blame if item.kind else "") for item in found if item.kind} <= {
        ("misaligned", "candidate")
    }
    assert any(item.outcome == outcome for item in found)
    assert outcome == "misaligned" or {item.outcome for item in found} == {"aligned"}
