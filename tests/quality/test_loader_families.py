"""Loaders with a planted fault are found with class, kind and line; innocent ones are not accused."""

from __future__ import annotations

import random

import pytest

from tests.loader_families import FAMILIES, judged, shortcomings

#: The families that run with every commit; the others take as long.
OFTEN = ("held numpy.random.Generator", "C generator", "deterministic by index", "ranks with own seeds")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.heavy, id=name) for name in FAMILIES]
)
def test_family__member__is_judged_rightly(name, tmp_path):
    seed = random.randrange(1 << 32)  # noqa: S311 - a sample
    print(f"seed {seed}")  # noqa: T201 - shown with a failure
    member = FAMILIES[name](random.Random(seed))  # noqa: S311 - a sample

    assert shortcomings(member, judged(member, tmp_path)) == [], member.source
