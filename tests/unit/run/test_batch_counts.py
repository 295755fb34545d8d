"""What a worker counts of a batch."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

from ci_autotest.run.worker.batch_counts import unfit_of


def test_unfit_of__reasons_in_any_order__is_the_first_in_the_alphabet():
    reasons = [("special", "too_few_elements"), ("special", "rejected"), None, ("empty", "bounds")]
    for order in permutations(reasons):
        attempts: list[Any] = [SimpleNamespace(unfit=unfit) for unfit in order]
        assert unfit_of(attempts) == {"special": "rejected", "empty": "bounds"}
