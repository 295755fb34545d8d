"""What the shipped suite finds: every operator made wrong in one element, and in its gradient alone, within 20 cases.

The benchmark (`benchmarks/detection.py`) prints the shares; here none may be missed.
"""

from __future__ import annotations

import importlib

import pytest
import torch

from benchmarks.detection import OPERATORS, bent, cases_of
from ci_autotest.discovery import SUITE, families
from ci_autotest.program.random_calls import is_random
from ci_autotest.record.declaration import declaration_of
from tests.engine import attempts

#: Cases after which a test without any gradient is taken to have none.
SEEN = 8


@pytest.mark.heavy
@pytest.mark.parametrize("family", families())
def test_suite__one_element_or_the_gradient_wrong__is_found(family):
    missed = []
    module = importlib.import_module(f"ci_autotest.suite.{family}")
    for name, value in vars(module).items():
        declaration = declaration_of(value)
        if declaration is None or declaration.raises:
            continue  # What must be refused has no result that could be wrong: test_refused_steps.py.
        has_value = has_gradient = is_found = False
        for number, case in enumerate(cases_of(declaration, f"{SUITE}/{family}::{name}", 0, attempts())):
            has_value, is_found = has_value or case.value, is_found or case.gradient
            has_gradient = has_gradient or case.has_gradient
            if has_value and (is_found or (number >= SEEN and not has_gradient)):
                break
        if not has_value and is_random(f"torch.{OPERATORS.get(name, name)}"):
            continue  # Any other number of the generator is as good: what is defined is compared, and that holds.
        if not has_value or (has_gradient and not is_found):
            missed.append((name, has_value, is_found))
    assert missed == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.02]),
        ([1.0, 0.0], [1.0, 0.01]),
        ([1, 2], [1, 3]),
        ([True, False], [True, True]),
        ([2j], [2.02j]),
        ([], []),
    ],
)
def test_bent__last_element__is_off(right, wrong):
    assert torch.allclose(bent(torch.tensor(right)), torch.tensor(wrong))
