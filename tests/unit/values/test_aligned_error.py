"""Greatest errors are the same whatever the order in which workers send them."""

from __future__ import annotations

import itertools

from ci_autotest.values.aligned_error import AlignedError, is_measured, joined_errors


def error(operator="torch.exp", dtype="float32", **how):
    given = {"cases": 1, "absolute": 0.0, "relative": 0.0, "ulp": 0, "used": 0.0, **how}
    return AlignedError(operator=operator, dtype=dtype, **given)


def test_joined_errors__any_order__is_one_entry_for_each_operator_and_dtype():
    parts = [
        error(absolute=1e-6, ulp=3, used=0.1), error(absolute=2e-6, relative=1e-5), error(dtype="int64", ulp=None, used=None),
        error("torch.add", cases=4),
    ]  # fmt: skip
    expected = (
        error("torch.add", cases=4), error(cases=2, absolute=2e-6, relative=1e-5, ulp=3, used=0.1),
        error(dtype="int64", ulp=None, used=None),
    )  # fmt: skip
    assert {joined_errors(order) for order in itertools.permutations(parts)} == {expected}


def test_is_measured__first_cases_and_some_of_the_others():
    assert [sum(map(is_measured, range(*part))) for part in ((0, 64), (64, 128))] == [64, 4]
