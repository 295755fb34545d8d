"""A finding's facts, those that there are."""

from __future__ import annotations

import re

import pytest

from ci_autotest.report.finding_facts import anchor, facts, facts_line, finding_row
from ci_autotest.report.links import Links
from ci_autotest.report.markdown_text import row
from ci_autotest.values.finding import Location
from tests import report_samples as samples

LINKS = Links(server="https://github.example/", repository="org/kernels", sha="abc", prefix="lib")


def table_of(*args, **known):
    return "".join(row(*each) for each in facts(*args, **known).items())


def rows_of(**changes):
    rows = table_of(samples.finding(**changes)).splitlines()
    return dict(row.strip("| ").split(" | ", 1) for row in rows)


def test_facts__whole_finding__tells_everything():
    assert rows_of() == {
        "operator": "`torch.nn.functional.layer_norm` on `kernels`, spelled `torch.nn.LayerNorm`",
        "differs": "value of layer_norm: 1 / 2 elements (50 %)",
        "candidate": "float32\\[1, 2\\] on cuda:0",
        "reference": "float32\\[1, 2\\] on cpu",
        "greatest difference": ("absolute 0.0041 at \\[0, 1\\], relative 0.0041; allowed: atol 1e-05, rtol 1.3e-06"),
        "first mismatch": (
            "\\[0, 1\\]: candidate **-0.9959006** (`-0x1.fde6ae0000000p-1`), "
            "reference **-0.9999900** (`-0x1.fffeb00000000p-1`), in float64 **-0.99999** (`-0x1.fffeb07466ee3p-1`)"
        ),
        "blame": ("**candidate**: in float64 the candidate is 1,300 times farther from the truth than the reference"),
        "test": (
            "`autotests/autotest_norms.py::layer_norm`, case 7, seed 1729, profile ordinary, "
            "`autotests/autotest_norms.py:12`"
        ),
        "seen": "in 3 of 20 cases",
    }


@pytest.mark.parametrize(
    ("name", "changes", "fact"),
    [
        ("operator", {"target": samples.OPERATOR}, f"`{samples.OPERATOR}` on `kernels`"),
        ("differs", {"difference": None, "where": "dtype of y"}, "dtype of y"),
        ("differs", {"difference": None, "outcome": "timed_out", "where": "step 3"}, "timed out: step 3"),
        ("differs", {"difference": samples.difference(total=0, mismatched=0)}, "value of layer_norm: 0 / 0 elements"),
        (
            "greatest difference",
            {
                "greatest_absolute_difference": None,
                "greatest_relative_difference": None,
                "greatest_ulp_difference": None,
                "difference": samples.difference(rtol=0.0, atol=0.0),
            },
            "absolute not finite at \\[0, 1\\]; allowed: none",
        ),
        (
            "first mismatch",
            {
                "difference": samples.difference(first_pair_decimal=("3", "4")),
                "first_pair": ("3", "4"),
                "first_index": (),
                "oracle_value": None,
            },
            "\\[\\]: candidate `3`, reference `4`",
        ),
        ("blame", {"blame": "unknown"}, samples.finding().oracle),
        ("blame", {"blame": "both", "oracle": ""}, "**both**"),
        ("seen", {"tests": tuple("abcde"), "cases": 1}, "in 1 of 20 cases, also in `a`, `b`, `c` and 2 more"),
        ("status", {"shrunk": False, "repro_verified": False}, "not shrunk; repro not verified"),
    ],
)
def test_facts__finding__tells_the_fact(name, changes, fact):
    assert rows_of(**changes)[name] == fact


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("greatest difference", {"difference": None, "greatest_absolute_difference": None, "greatest_relative_difference": None,
                      "greatest_ulp_difference": None}),
        ("first mismatch", {"first_index": None}),
        ("blame", {"blame": "unknown", "oracle": ""}),
        ("candidate", {"candidate_seen": ""}),
        ("status", {}),
    ],
)  # fmt: skip
def test_facts__fact_that_is_not_there__has_no_row(name, changes):
    assert name not in rows_of(**changes)


@pytest.mark.parametrize("value", ["0x1.8p+1+0x1p+0j", "nan", "12", "0x" + "f" * 400 + "p9999"])
def test_facts__oracle_value_that_is_no_hexadecimal_float__is_shown_as_it_is(value):
    assert f"in float64 `{value[:60]}" in rows_of(oracle_value=value)["first mismatch"]


def test_facts__links__lead_to_the_line():
    table = table_of(samples.finding(location=Location(file="a b/(c)`.py", line=3)), LINKS)

    assert "[a b/(c)\\`.py:3](https://github.example/org/kernels/blob/abc/lib/a%20b/%28c%29%60.py#L3)" in table


def test_facts_line__finding__is_one_row():
    assert facts_line(samples.finding(known="half | half")) == (
        "| `torch.nn.functional.layer_norm` | `kernels` | value, accepted: half &#124; half "
        "| absolute 0.0041 | `findings/layer_norm-3f2a` |\n"
    )


def test_facts__differs_from_itself__names_the_runs():
    table = table_of(samples.finding(kind="nondeterminism"))
    assert "| second run | float32" in table
    assert "| first run | float32" in table
    assert re.search(r"first mismatch .*: second run .*, first run ", table)


def test_facts__only_an_earlier_run_has_its_cases__says_so_in_place_of_a_count():
    table = table_of(samples.finding(earlier=True, cases=0, of_cases=0))
    assert "no case of this run shows it" in table
    assert "0 of 0" not in table


@pytest.mark.parametrize(
    ("changes", "is_new", "row"),
    [
        ({}, None, f"| `{samples.OPERATOR}` | `kernels` | value | 0.0041 | 3 of 20 | candidate |\n"),
        ({"blame": "ill_conditioned"}, True, f"| `{samples.OPERATOR}` | `kernels` | value | 0.0041 | 3 of 20 | ill conditioned | **new** |\n"),
        ({"blame": "unknown", "outcome": "timed_out"}, False, f"| `{samples.OPERATOR}` | `kernels` | timed out | 0.0041 | 3 of 20 |  | still |\n"),
        (
            {"operator": "torch.nn.functional.scaled_dot_product_attention"}, None,
            "| `…scaled_dot_product_attention` | `kernels` | value | 0.0041 | 3 of 20 | candidate |\n",
        ),
        (
            {"operator": "", "test": "autotests/a/rather/long/path/to/autotest_x.py::test_sums"}, None,
            "| `…test_sums` | `kernels` | value | 0.0041 | 3 of 20 | candidate |\n",
        ),
        ({"operator": "x" * 70_000}, None, f"| `…{'x' * 38}…` | `kernels` | value | 0.0041 | 3 of 20 | candidate |\n"),
    ],
)  # fmt: skip
def test_finding_row__finding__is_as_wide_as_the_page(changes, is_new, row):
    assert finding_row(samples.finding(**changes), is_new) == row


def test_finding_row__of_a_page_with_sections__links_to_the_one_of_its_leg():
    found = samples.finding(id="a b-1")
    assert anchor(found, "cpu") == "cpu-a-b-1"
    assert len({anchor(found, page) for page in ("3.11", "3-11", "3_11", "x" * 50 + ".", "x" * 50 + ":")}) == 5
    assert finding_row(found, None, "cpu").startswith(f"| [`{samples.OPERATOR}`](#user-content-cpu-a-b-1) |")


@pytest.mark.parametrize(
    ("file", "line", "shown"),
    [
        ("src/k.py", 12, "[src/k.py:12](https://github.example/org/kernels/blob/abc/src/k.py#L12)"),
        ("../k.py", 12, "`../k.py:12`"),
        ("src/k.py", 0, "`src/k.py:0`"),
    ],
)
def test_facts__kernel__is_linked_where_it_is_in_the_repository(file, line, shown):
    table = table_of(samples.finding(), LINKS, kernel=Location(file=file, line=line))

    assert f"| kernel | {shown} |\n" in table
    assert "| kernel | `src/k.py:1` |" in table_of(samples.finding(), kernel=Location(file="src/k.py", line=1))


def test_facts__layer_at_fault__is_a_row():
    assert rows_of(layer="inductor")["layer"] == "inductor"
