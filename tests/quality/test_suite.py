"""The shipped suite: every test accepts its own draws, and torch is aligned with itself in every profile."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ci_autotest.suite
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.discovery import families
from ci_autotest.record.declaration import Declaration, declaration_of
from ci_autotest.record.draw.profiles import ORDINARY, PROFILES
from tests.engine import judged, record

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Attempt

# In a run torch's warnings are no errors: a variance of too few elements is NaN and a warning.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

#: Ordinary attempts of each test, and the share that the reference must accept.
ATTEMPTS = 16
SHARE = 0.5
#: Attempts in each profile; `make soak` has many.
IN_PROFILE = 1


def declared_in(family: str):
    module = importlib.import_module(f"ci_autotest.suite.{family}")
    return {name: found for name, value in vars(module).items() if (found := declaration_of(value)) is not None}


def attempted(declaration: Declaration, *case: int, **how: str) -> Attempt:
    """Make an attempt that is accepted where the reference refuses what the test says that it must."""
    declared = {name: getattr(declaration, name) for name in ("raises", "match", "dtypes", "forms")}
    return record(declaration.body, *case, **declared, **how)


@pytest.mark.parametrize("family", families())
def test_suite__ordinary_attempts__are_accepted_and_aligned_with_torch_itself(family):
    weak, misaligned, undefined = [], [], []
    for name, declaration in declared_in(family).items():
        attempts = [
            attempted(declaration, case, test=f"{family}::{name}", profile=ORDINARY) for case in range(ATTEMPTS)
        ]
        accepted = [attempt for attempt in attempts if attempt.refused is None]
        if len(accepted) < SHARE * ATTEMPTS:
            weak.append((name, len(accepted)))
        for attempt in accepted[:2]:
            if judged(attempt, TorchBackend()).verdict.outcome != "aligned":
                misaligned.append(name)
            if attempt.trace.backward_failure is not None:
                undefined.append((name, attempt.trace.backward_failure))
    assert (weak, misaligned, undefined) == ([], [], [])


@pytest.mark.parametrize("family", families())
def test_suite__every_profile__is_aligned_with_torch_itself(family):
    misaligned = []
    for name, declaration in declared_in(family).items():
        for profile in PROFILES:
            for case in range(IN_PROFILE):
                attempt = attempted(declaration, case, test=f"{family}::{name}", profile=profile)
                if attempt.refused is None and judged(attempt, TorchBackend()).verdict.outcome != "aligned":
                    misaligned.append((name, profile, case))
    assert misaligned == []


def test_suite__counted__has_twenty_families_and_two_hundred_operators():
    operators = set()
    for family in families():
        for name, declaration in declared_in(family).items():
            attempt = attempted(declaration, test=f"{family}::{name}", profile=ORDINARY)
            operators |= {step_operator(step, attempt.program.steps) for _, step in attempt.program.calls}
    assert len(families()) >= 20
    assert len(operators) >= 200


def test_suite__imports__are_the_public_names_alone():
    for path in Path(ci_autotest.suite.__file__).parent.glob("[a-z]*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Import)
            assert not isinstance(node, ast.ImportFrom) or node.module in {"ci_autotest", "ci_autotest.suite"}
