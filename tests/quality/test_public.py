"""The operators that coverage is counted against are those of the torch that is installed, and the suite's own."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.public_operators import public_operators
from ci_autotest.discovery import families
from ci_autotest.report.coverage import catalogue

#: Families that call operators of all others: with other sizes, values, dtypes or arguments.
ACROSS = {
    "arguments", "batches", "edge_values", "extreme_cases", "large_sizes", "places", "two_dtypes", "windows",
}  # fmt: skip


def shipped(kind: str) -> dict[str, str]:
    return {operator: family for family, own in getattr(catalogue(), kind).items() for operator in own}


@pytest.mark.skipif(not torch.__version__.startswith(catalogue().torch), reason="the file is of another torch")
def test_public__shipped_file__is_what_the_rule_gives():
    assert sorted(shipped("public")) == sorted(public_operators())


def test_public__names__are_canonical_and_torchs_own():
    names = shipped("public")
    assert [name for name in names if operator_of(name) != name and "__" not in name] == []
    assert len(names) > 500


def test_suite__public_operator__is_called_or_left_out_with_a_reason():
    public, left_out = shipped("public"), catalogue().left_out
    assert sorted({*public} - {*shipped("suite")}) == sorted(left_out)
    assert len(left_out) < len(public) / 10


def test_suite__operator_that_is_public__is_of_the_same_family_in_both():
    public, suite = shipped("public"), shipped("suite")
    assert {name: (public[name], suite[name]) for name in suite if public.get(name, suite[name]) != suite[name]} == {}
    assert set(families()) - set(suite.values()) == ACROSS
    # No public operator is their own.
    assert set(families()) - set(public.values()) == ACROSS | {"autograd", "call_forms"}
