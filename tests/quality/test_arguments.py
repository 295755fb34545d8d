"""Draws of the suite: optional arguments, dtypes and forms of calls that no test has, by what torch itself takes.

An operator that gains an argument in another torch fails this test until a test of the suite gives it in some cases and
leaves it out in others, or the argument is listed in ``arguments.json``. One that gains half precision fails it until a
test draws it, or it is listed in ``draws.json`` with a reason; so it is with ``out=``, autocast, second derivatives and
five dimensions.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

import pytest
import torch

from ci_autotest.backends.operators.argument_binding import Binder
from ci_autotest.backends.operators.signatures import forms
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_MODULE
from ci_autotest.report.coverage import catalogue
from tests.suite_draws import HALVES, Draws, draws_of_suite

LISTED = Path(__file__).with_name("arguments.json")
UNDRAWN = Path(__file__).with_name("draws.json")
#: Torch's own, of operators that will change, and of complex32.
pytestmark = pytest.mark.filterwarnings("ignore")
OF_ANOTHER_TORCH = not torch.__version__.startswith(catalogue().torch)
#: Where a result is put, and how it lies there, is no operator's own; deprecated spellings of ``reduction``; generators,
#: because both sides draw from the same one.
COMMON = frozenset({
    "out", "layout", "device", "pin_memory", "requires_grad", "memory_format", "generator", "size_average", "reduce",
    "inplace", "names", "dimname", "_stacklevel", "non_blocking",
})  # fmt: skip


def optional(operator: str) -> set[str]:
    """Return the arguments that some form of an operator lets a call leave out."""
    found = {p.name for form in forms(operator, CALL_FUNCTION) for p in form if p.has_default}
    return found - COMMON


class Reason(StrEnum):
    """Why no test draws a dtype or form that the operator takes."""

    #: Its result is complex32, and no program holds data of that dtype.
    COMPLEX_HALF = "complex32"
    #: Torch has no backward pass there.
    NO_BACKWARD = "no_backward"
    #: What is defined of its random result does not hold in that dtype.
    RANDOM = "random"
    #: Torch itself fails there, as docs/found.md says.
    FAULT = "torch_fault"
    #: Another argument of the test, or what is defined of its result, leaves no choice.
    DEMANDED = "demanded"
    #: A form is planned for two cases of a test, and these differ from it in something that the form cannot have.
    PLAN = "plan"


def given_by(draws: Draws) -> dict[str, list[set[str]]]:
    """Return the names of the arguments of each call."""
    found: dict[str, list[set[str]]] = {}
    binder = Binder()
    for operator, calls in draws.steps.items():
        for step, _ in calls:
            try:
                names = set(binder.names(step, operator)) if step.op != CALL_MODULE else None
            except UnsupportedError:
                continue
            if names is not None:
                found.setdefault(operator, []).append(names)
    return found


@pytest.fixture(scope="module")
def draws() -> Draws:
    return draws_of_suite()


def test_suite__operators_that_its_tests_call__are_those_of_the_shipped_file(draws):
    assert sorted(operator for own in catalogue().suite.values() for operator in own) == sorted(draws.called)


@pytest.mark.skipif(OF_ANOTHER_TORCH, reason="the list is of another torch")
def test_suite__optional_argument__is_given_and_left_out_or_listed(draws):
    public = {operator for own in catalogue().suite.values() for operator in own}
    missed: dict[str, dict[str, list[str]]] = {"never given": {}, "never left out": {}}
    for operator, calls in sorted(given_by(draws).items()):
        wanted = optional(operator) if operator in public and calls else set()
        never, always = wanted - set().union(*calls), wanted.intersection(*calls)
        missed["never given"] |= {operator: sorted(never)} if never else {}
        missed["never left out"] |= {operator: sorted(always)} if always else {}
    assert missed == json.loads(LISTED.read_text(encoding="utf-8"))


@pytest.mark.skipif(OF_ANOTHER_TORCH, reason="the list is of another torch")
def test_suite__dtype_or_form_that_an_operator_takes__is_drawn_or_listed(draws):
    public = {operator for own in catalogue().suite.values() for operator in own}
    listed = json.loads(UNDRAWN.read_text(encoding="utf-8"))
    missed = {kind: sorted((draws.taken[kind] - draws.drawn[kind]) & public) for kind in listed}
    assert missed == {kind: sorted(reasons) for kind, reasons in listed.items()}
    assert {reason for reasons in listed.values() for reason in reasons.values()} <= {*Reason}


def test_suite__half_precision__is_drawn_of_three_operators_in_five(draws):
    # So that the list above cannot be met by an empty one.
    for kind in HALVES:
        assert len(draws.drawn[kind]) > 0.6 * len(draws.steps)
        assert len(draws.taken[kind]) > 0.6 * len(draws.steps)
