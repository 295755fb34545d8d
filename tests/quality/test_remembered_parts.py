"""Kernels that remember a part of their computation are suspected in a default run, and honest ones are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.quality import remembered_parts as parts
from tests.quality.kernel_runs import failures_of_kernel

if TYPE_CHECKING:
    from pathlib import Path

#: A run makes five calls on one tensor object, so what goes wrong at the sixth is not seen.
UNSEEN = {"silu-forward-object-sixth"}
MODULE = """
from ci_autotest import autotest, random, random_tensor, torch

@autotest()
def body():
    return {}
"""


def failures_of(name: str, folder: Path) -> list[tuple[str, str]]:
    operator = parts.OPERATORS[name.partition("-")[0]]
    return failures_of_kernel(MODULE.format(operator.body), "body", {operator.name: parts.kernel_of(name)}, folder)


@pytest.mark.heavy
def test_sample__has_at_least_forty_wrong_ones():
    assert sum(map(parts.is_wrong_later, parts.names())) >= 40


@pytest.mark.heavy
@pytest.mark.parametrize("name", parts.names())
def test_kernel__that_is_wrong_later__is_suspected_in_twenty_cases(name: str, tmp_path: Path):
    if parts.is_wrong_later(name):
        found = failures_of(name, tmp_path)
        last = parts.OPERATORS[name.partition("-")[0]].name.rpartition(".")[2]
        assert {operator.rpartition(".")[2] for operator, _ in found} == (set() if name in UNSEEN else {last})


@pytest.mark.parametrize("name", parts.HONEST)
def test_honest_kernel__is_not(name: str, tmp_path: Path):
    assert failures_of(name, tmp_path) == []
