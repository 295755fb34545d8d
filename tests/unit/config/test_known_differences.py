"""Accepted differences: as narrow as their row, until its date."""

from __future__ import annotations

import re
from datetime import date

import pytest

from ci_autotest.config import Config, Known, ToleranceRule
from ci_autotest.config.known_differences import apply_known, check_known, ending_rows, matches, unmatched
from ci_autotest.errors import ConfigError
from ci_autotest.kinds import TorchCandidate
from ci_autotest.values.speed import SpeedResult
from tests import report_samples as samples

TODAY = date(2026, 11, 20)
FINDING = samples.finding()  # torch.nn.functional.layer_norm on kernels, value; written as torch.nn.LayerNorm


def row(operator: str = "torch.nn.functional.layer_norm", **how) -> Known:
    return Known(operator=operator, reason="because", **how)


def tolerance(**how) -> ToleranceRule:
    return ToleranceRule(operator="*", rtol=0.0, atol=0.0, reason="because", **how)


@pytest.mark.parametrize(
    ("known", "is_named"),
    [
        (row(), True),
        (row("torch.layer_norm"), True),
        (row("torch.Tensor.layer_norm"), True),
        (row("torch.nn.LayerNorm"), True),
        (row("torch.nn.functional.*_norm"), True),
        (row("*"), True),
        (row("torch.nn.functional.batch_norm"), False),
        (row("layer_norm"), False),
        (row("TORCH.NN.FUNCTIONAL.LAYER_NORM"), False),
        (row(candidate="kernels"), True),
        (row(candidate="compiled"), False),
        (row(kind="value"), True),
        (row(kind="gradient"), False),
        (row(candidate="kernels", kind="gradient"), False),
    ],
    ids=str,
)
def test_matches__row__names_operator_candidate_and_kind(known, is_named):
    assert matches(known, FINDING) == is_named


@pytest.mark.parametrize(
    ("operator", "target", "written"),
    [
        ("torch.linalg.det", "det", "torch.det"),
        ("torch.mul", "operator.mul", "torch.multiply"),
        ("tests.py::loader[1]: data.Rows", "data.Rows", "data.Rows"),
        ("tests.py::loader[1]: data.Rows", "data.Rows", "tests.py::loader[1]: data.Rows"),
    ],
)
def test_matches__alias_class_or_loader__names_the_operator(operator, target, written):
    assert matches(row(written), samples.finding(operator=operator, target=target))


@pytest.mark.parametrize(
    ("operator", "written"),
    [
        ("mypackage.softmax", "torch.softmax"),
        ("torch.linalg.norm", "torch.norm"),
        ("torch.fft.fft", "torch.Tensor.fft"),
    ],
)
def test_matches__other_operator_of_the_same_last_name__is_not_accepted(operator, written):
    assert not matches(row(written), samples.finding(operator=operator, target=operator))


@pytest.mark.parametrize(
    ("until", "reason"),
    [(None, "because"), (TODAY, "because"), (date(2026, 11, 21), "because"), (date(2026, 11, 19), None)],
    ids=["no date", "its last day", "later", "past"],
)
def test_apply_known__date__bounds_it(until, reason):
    assert [item.known for item in apply_known((FINDING,), [row(until=until)], TODAY)] == [reason]


def test_apply_known__two_rows__first_valid_one_gives_the_reason():
    rows = [row(until=date(2020, 1, 1)), Known(operator="*", reason="second"), row()]
    assert apply_known((FINDING,), rows, TODAY)[0].known == "second"


def test_apply_known__other_findings__are_left_alone():
    other = samples.numbered(1)
    assert apply_known((FINDING, other), [row()], TODAY)[1] == other


@pytest.mark.parametrize(("kind", "reason"), [("value", "because"), ("gradient", None), (None, None)])
def test_apply_known__timed_call__is_asked_as_a_finding_is(kind, reason):
    timed = SpeedResult(
        test="a",
        candidate="kernels",
        case=0,
        phase="forward",
        verdict="misaligned",
        operator=FINDING.operator,
        kind=kind,
    )
    (found,) = apply_known((timed,), [row("*", kind="value")], TODAY)
    assert (found.known, unmatched((timed,), [row("*", kind="value")], TODAY) == []) == (reason, reason is not None)
    assert apply_known((timed,), [row("*")], TODAY)[0].known == (None if kind is None else "because")


def test_unmatched__rows__each_says_what_to_do():
    rows = [row(), row("torch.exp"), row(until=date(2020, 1, 1))]
    assert unmatched((FINDING,), rows, TODAY) == [
        "known difference 'torch.exp' (because) matched no finding of this run. If it never does, remove the row or correct its spelling.",
        "known difference 'torch.nn.functional.layer_norm' (because) was accepted until 2020-01-01, which has passed. "
        "Fix the operator, or move the date.",
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kind": "valeu"}, "known[0] has kind 'valeu', which does not exist. Did you mean 'value'?"),
        ({"candidate": "kernel"}, "known[0] has candidate 'kernel', which does not exist. Did you mean 'kernels'?"),
        ({"candidate": "zzz"}, "known[0] has candidate 'zzz', which does not exist. Known: cuda, "),
    ],
)
def test_check_known__a_name_of_nothing__is_refused(given, expected):
    config = Config(known=(row(**given),), candidates=(TorchCandidate(name="kernels"),))
    with pytest.raises(ConfigError, match=re.escape(f"autotest.yml: {expected}")):
        check_known(config, "autotest.yml")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"candidate": "kernel"},
            "tolerances[0] has candidate 'kernel', which does not exist. Did you mean 'kernels'?",
        ),
        ({"dtype": "flaot16"}, "tolerances[0] has dtype 'flaot16', which does not exist. Did you mean 'float16'?"),
    ],
)
def test_check_known__a_tolerance_of_nothing__is_refused(given, expected):
    config = Config(tolerances=(tolerance(**given),), candidates=(TorchCandidate(name="kernels"),))
    with pytest.raises(ConfigError, match=re.escape(f"autotest.yml: {expected}")):
        check_known(config, "autotest.yml")


@pytest.mark.parametrize("operator", ["*", "*.*"])
def test_check_known__a_row_that_accepts_every_finding__is_refused(operator):
    with pytest.raises(ConfigError, match=re.escape(f"known[1] has operator '{operator}', which accepts every")):
        check_known(Config(known=(row(), row(operator))), "autotest.yml")


def test_check_known__names_of_something__pass():
    known = (row(kind="value", candidate="paddle"), row(), row("*", kind="leniency"))
    check_known(
        Config(known=known, tolerances=(tolerance(), tolerance(dtype="float16", candidate="jax"))), "autotest.yml"
    )


def test_ending_rows__only_a_row_that_accepted_such_a_difference__is_told():
    rows = [
        row(kind="error"),
        row(kind="value"),
        row("torch.exp", kind="error"),
        row(kind="shape", until=date(2026, 1, 1)),
    ]
    told = ending_rows([samples.finding(kind="error"), samples.finding(kind="shape")], rows, TODAY)
    assert told == [
        "known difference 'torch.nn.functional.layer_norm' (because) accepts kind error: nothing after such a call is "
        "compared in its case, because it gave nothing"
    ]
