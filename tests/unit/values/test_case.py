"""The one place where it is decided what a case's inputs depend on."""

from __future__ import annotations

from ci_autotest.values.case import ATTEMPTS_PER_CASE, key_of
from ci_autotest.values.case import test_key as stream_key


def test_test_key__seed_and_name__are_told_apart():
    names = ["a.py::f", "a.py::g", "b.py::f", "", "a.py::f "]
    keys = {stream_key(seed, name) for seed in (0, 1, -1, 10**30) for name in names}
    assert len(keys) == 4 * len(names)
    assert all(0 <= key < 2**64 for key in keys)


def test_test_key__digits_of_seed_and_name__do_not_run_together():
    assert stream_key(1, "2") != stream_key(12, "")


def test_test_key__this_release__is_as_written_down():
    # A change here changes what every seed that was ever reported means.
    assert stream_key(0, "autotests/autotest_a.py::softmax") == 1597253669170827670


def test_key_of__cases_and_attempts__are_told_apart():
    keys = {key_of(7, case, attempt) for case in range(500) for attempt in range(ATTEMPTS_PER_CASE)}
    assert len(keys) == 500 * ATTEMPTS_PER_CASE
    assert {key[0] for key in keys} == {7}


def test_key_of__attempts_per_case__fit_beside_the_case():
    assert ATTEMPTS_PER_CASE <= 256
    assert key_of(7, 2**40, ATTEMPTS_PER_CASE - 1)[1] < 2**64
