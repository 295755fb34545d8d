"""The input `options`: which lines it takes, and what it says of all others."""

from __future__ import annotations

import pytest

from action.errors import StepError
from action.options import parse_options, value_of

LINES = [
    "--compat=oneflow", "--executor=local", "--maxfail=3", "--memory=4GiB", "--speed", "--strictness=ulp", "--workers=2",
    "--torch=cpu", "--cache=false", "--set=case_timeout=30s", "--set=slower-factor=1.5", "--set=reference={device: auto}",
    "--set=candidates=[{name: a, backend: torch}]", "--set=tolerances=[]", "--set=known=[]", "--set=opinfo={}",
]  # fmt: skip


def test_parse_options__all_that_there_are__are_kept_as_they_are_written():
    found = parse_options(LINES)
    assert list(found.values()) == LINES
    assert list(found)[-7:] == [
        "case-timeout", "slower-factor", "reference", "candidates", "tolerances", "known", "opinfo",
    ]  # fmt: skip


HOSTILE = [
    "; rm -rf /",
    "$(touch owned)",
    "`id`",
    "a b",
    "--help",
    "-x",
    "'\"\\",
    "* ?",
    "&& exit 0",
    "=",
    "--output=/etc",
]


@pytest.mark.parametrize("start", ["--workers", "--memory", "--set=known"])
def test_parse_options__hostile_value__stays_one_argument(start: str):
    assert [list(parse_options([f"{start}={value}"]).values()) for value in HOSTILE] == [
        [f"{start}={value}"] for value in HOSTILE
    ]


ALL = "--compat, --executor, --maxfail, --memory, --set, --speed, --strictness, --workers, --torch, --cache"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--strictnes=ulp", "which is no option here: did you mean --strictness?"),
        ("--case_timeout=30s", "which is no option here: did you mean --set=case-timeout?"),
        ("--privileged", f"which is no option here: write one of {ALL}."),
        ("--seed=3", "which is no option here: did you mean the input 'seed'?"),
        ("--output=/etc", "which is no option here: did you mean the input 'output'?"),
        ("--candidate=a", "which is no option here: did you mean the input 'candidate'?"),
        ("--json", "which the action decides: remove it."),
        ("--quiet", "which the action decides: remove it."),
        ("strictness=ulp", "which is no option: write one --name=value a line."),
        ("--strictness ulp", "which is no option: write one --name=value a line."),
        ("-k softmax", "which is no option: write one --name=value a line."),
        ("--", "which is no option: write one --name=value a line."),
        ("--=x", "which is no option: write one --name=value a line."),
        ("---workers=2", "which is no option here: did you mean --workers?"),
        ("--Workers=2", "which is no option here: did you mean --workers?"),
        ("--workers", "which has no value: write --workers=VALUE."),
        ("--workers=", "which has no value: write --workers=VALUE."),
        ("--speed=true", "but --speed has no value: write --speed."),
        ("--strictness=exact", "but 'exact' does not exist: give one of tolerance, measured, ulp, bitwise."),
        ("--torch=gpu", "but 'gpu' does not exist: give one of auto, cpu, default."),
        ("--cache=yes", "but 'yes' does not exist: give one of true, false."),
        ("--set", f"which --set does not reach: write one of {ALL}."),
        ("--set=known", "which has no value: write --set=known=VALUE."),
        ("--set=know=[]", "which --set does not reach: did you mean --set=known?"),
        ("--set=output=/etc", "which --set does not reach: did you mean the input 'output'?"),
        ("--set=paths=[a]", "which --set does not reach: did you mean the input 'paths'?"),
        ("--set=strictness=ulp", "which --set does not reach: did you mean --strictness?"),
    ],
)
def test_parse_options__line_that_cannot_be_meant__says_what_to_write(line: str, why: str):
    with pytest.raises(StepError) as raised:
        parse_options([line])
    assert str(raised.value) == f"the input 'options' has '{line}', {why}"


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (["--workers=2", "--workers=2"], "workers"),
        (["--speed", "--speed"], "speed"),
        (["--set=case-timeout=3s", "--set=case_timeout=4s"], "case-timeout"),
    ],
)
def test_parse_options__twice__is_refused(lines: list[str], name: str):
    with pytest.raises(StepError) as raised:
        parse_options(["--memory=off", *lines])
    assert str(raised.value) == (
        f"the input 'options' has '{lines[1]}', but another line sets '{name}': remove one of the two."
    )


def test_value_of__options_of_the_action__are_given_or_the_first():
    assert [value_of({}, name) for name in ("torch", "cache")] == ["auto", "true"]
    assert value_of(parse_options(["--torch=cpu"]), "torch") == "cpu"
