"""Arguments: which optional ones the suite never gives, or always gives, by torch's own signatures.

An operator that gains an argument in another torch fails this test until a test of the suite gives it in some cases and
leaves it out in others, or the argument is listed in ``arguments.json``.
"""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from ci_autotest.backends.mapping.argument_binding import Binder
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.operators.signatures import forms
from ci_autotest.discovery import families
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_MODULE
from ci_autotest.record.declaration import declaration_of
from ci_autotest.report.coverage import catalogue
from tests.engine import record

CASES = 20
LISTED = Path(__file__).with_name("arguments.json")
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


def given_by_suite() -> dict[str, list[set[str]]]:
    """Return the names of the arguments of each call that 20 cases of every test make."""
    found: dict[str, list[set[str]]] = defaultdict(list)
    binder = Binder()
    for family in families():
        for name, value in vars(importlib.import_module(f"ci_autotest.suite.{family}")).items():
            declaration = declaration_of(value)
            how: Any = declaration and {"raises": declaration.raises, "match": declaration.match}
            for case in range(CASES) if declaration is not None else ():
                steps = record(declaration.body, case, test=f"{family}::{name}", **how).program.steps
                for step in steps:
                    if step.op == CALL_MODULE or not step.op.startswith("call"):
                        continue
                    operator = step_operator(step, steps)
                    try:
                        found[operator].append(set(binder.names(step, operator)))
                    except UnsupportedError:
                        continue
    return found


@pytest.mark.skipif(not torch.__version__.startswith(catalogue().torch), reason="the list is of another torch")
def test_suite__optional_argument__is_given_and_left_out_or_listed():
    public = {operator for own in catalogue().suite.values() for operator in own}
    missed: dict[str, dict[str, list[str]]] = {"never given": {}, "never left out": {}}
    for operator, calls in sorted(given_by_suite().items()):
        wanted = optional(operator) if operator in public and calls else set()
        never, always = wanted - set().union(*calls), wanted.intersection(*calls)
        missed["never given"] |= {operator: sorted(never)} if never else {}
        missed["never left out"] |= {operator: sorted(always)} if always else {}
    assert missed == json.loads(LISTED.read_text(encoding="utf-8"))
