"""Each planted fault is found in its cases, with the right operator, kind and blame; no innocent is called misaligned.

Faults that end or stop their process are found by a whole run: ``benchmarks/quality.py`` and its heavy test.
"""

from __future__ import annotations

import pytest

from ci_autotest.record.declaration import declaration_of
from ci_autotest.values.finding import TOLERATED_BLAMES
from tests.engine import RULES, Rules, run_test, substitute
from tests.quality import autotest_bodies
from tests.quality.planted import CASES, FAULTS, INNOCENTS

EXACT = Rules(strictness="bitwise")

HERE = [planted for planted in FAULTS if not planted.ends]


def body_of(name):
    return declaration_of(getattr(autotest_bodies, name)).body


@pytest.mark.parametrize("planted", HERE, ids=[planted.name for planted in HERE])
def test_run_test__planted_fault__is_found_with_its_operator_kind_and_blame(planted):
    candidate = substitute(**{planted.operator: planted.function})
    verdicts = run_test(body_of(planted.body), candidate, planted.cases, EXACT if planted.strict else RULES)
    # Where torch itself is far from float64 the reference is blamed: such a case accuses nobody.
    found = [item for item in verdicts if item.outcome == "misaligned" and item.blame not in TOLERATED_BLAMES]
    (operator,) = candidate.functions
    assert found, "not found in any case"
    # Of infinities nobody knows who is right where the reference makes NaN of them: that alone would not do.
    assert {(item.operator, item.blame) for item in found} - {(operator, "unknown")} == {(operator, "candidate")}
    assert {item.kind for item in found} & planted.kinds


@pytest.mark.parametrize(
    ("body", "operator", "function"), [row[1:] for row in INNOCENTS], ids=[row[0] for row in INNOCENTS]
)
def test_run_test__innocent__is_never_called_misaligned(body, operator, function):
    verdicts = run_test(body_of(body), substitute(**{operator: function}), CASES)
    bad = [item for item in verdicts if item.outcome != "aligned" and item.blame not in TOLERATED_BLAMES]
    assert [(item.kind, item.blame, item.oracle, item.misalignment) for item in bad] == []
    assert len(verdicts) >= CASES - 3


def test_faults__table__is_as_large_as_it_must_be():
    assert len(FAULTS) >= 80
    assert len({planted.operator for planted in FAULTS}) >= 50
    assert 2 * sum(bool(planted.source) for planted in FAULTS) >= len(FAULTS)
    assert len(INNOCENTS) >= 20
