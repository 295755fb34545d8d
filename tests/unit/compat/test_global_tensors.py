"""OneFlow's placements and sbp in a recording: what may be drawn, and what a test of global tensors is declared as."""

from __future__ import annotations

import unittest

import pytest

from ci_autotest import random_tensor
from ci_autotest.compat.global_tensors import Placement, Placements, SbpNames, Sbps, globaltest, to_global
from ci_autotest.compat.oneflow_names import autotest
from ci_autotest.compat.oneflow_unittest import skip_unless
from ci_autotest.errors import AuthorError
from ci_autotest.record.declaration import declaration_of
from tests.engine import record

SPLIT, WHOLE, PART = SbpNames.split, SbpNames.broadcast, SbpNames.partial_sum


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[WHOLE]]),
        ({"max_dim": 2}, [[SPLIT(0)], [SPLIT(1)], [WHOLE], [PART]]),
        ({"max_dim": 3, "valid_split_axis": 1, "except_partial_sum": True}, [[SPLIT(1)], [WHOLE]]),
        ({"max_dim": 2, "valid_split_axis": [0], "except_broadcast": True}, [[SPLIT(0)], [PART]]),
        ({"max_dim": 1, "except_split": True}, [[WHOLE], [PART]]),
        ({"dim": 2}, [[WHOLE, WHOLE]]),
    ],
    ids=str,
)
def test_all_sbp__outside_of_a_test__lists_what_oneflow_lists(options, expected):
    assert list(Sbps(**options)) == expected


def test_all_sbp__ranks_of_two_dimensions__are_all_combinations():
    found = list(Sbps(Placement("cpu", [[0, 1], [2, 3]]), max_dim=1))
    assert len(found) == 9
    assert [SPLIT(0), WHOLE] in found


def test_all_placement__is_one_of_all_ranks():
    assert list(Placements()) == [Placement.all("cpu")]
    assert (len(Placements()), Placements()[0].hierarchy) == (1, (1,))


@pytest.mark.parametrize(
    ("sbp", "text", "placement"),
    [
        (SPLIT(-1), "oneflow.sbp.split(dim=-1)", "Shard(2)"),
        (SPLIT(1), "oneflow.sbp.split(dim=1)", "Shard(1)"),
        (WHOLE, "oneflow.sbp.broadcast", "Replicate"),
        (PART, "oneflow.sbp.partial_sum", "Partial"),
    ],
)
def test_sbp__of_a_tensor_of_three_dimensions__is_a_placement(sbp, text, placement):
    assert (repr(sbp), sbp.placement(3)) == (text, placement)


@autotest(n=1, rtol=1e-3, auto_backward=False)
def _loose(test_case):
    return test_case


@autotest(n=1, rtol=1e-5)
def _strict(test_case):
    return test_case


def test_globaltest__calls_declared_tests__has_the_weakest_of_their_options():
    @globaltest
    def both(test_case):
        _strict(test_case)
        _loose(test_case)

    found = declaration_of(both)
    assert (found.n, found.rtol, found.auto_backward, found.is_foreign) == (None, 1e-3, False, True)


def test_skip_unless__class__skips_inherited_tests_and_no_test_of_global_tensors():
    class Base(unittest.TestCase):
        def test_inherited(self):
            """Do nothing."""

    @skip_unless(1, 2)
    class Derived(Base):
        @globaltest
        def test_global(self):
            """Do nothing."""

        @globaltest
        @skip_unless(1, 4)
        def test_below(self):
            """Do nothing."""

    skipped = {
        name
        for name in dir(Derived)
        if name.startswith("test_") and hasattr(getattr(Derived, name), "__unittest_skip__")
    }
    assert skipped == {"test_inherited"}
    assert not hasattr(Base.test_inherited, "__unittest_skip__")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda: to_global(random_tensor(2), Placement.all("cpu")), "to_global() names no sbp. Write "),
        (lambda: to_global(random_tensor(2), Placement.all("cpu"), "split(0)"), "sbp 'split(0)' is none. Write "),
        (lambda: SbpNames.split("0"), "flow.sbp.split('0') names no dimension. Write "),
    ],
    ids=["nothing", "a text", "no number"],
)
def test_to_global__no_sbp__is_one_sentence(body, said):
    with pytest.raises(AuthorError) as caught:
        record(body)
    assert said in str(caught.value)


def test_globaltest__loop_that_leaves_members_out__rejects_the_case():
    @globaltest
    def cut(test_case):
        for sbp in Sbps(max_dim=2):
            if sbp[0] == SPLIT(0):
                return to_global(random_tensor(2), Placement.all("cpu"), sbp) * 2
        return None

    found = [record(lambda: cut(None), case) for case in range(12)]
    assert {bool(attempt.assumption) for attempt in found} == {True, False}
    assert all(
        attempt.program.body[0].args[0].placements == ("Shard(0)",) for attempt in found if not attempt.assumption
    )
