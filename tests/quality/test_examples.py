"""``@autotest(examples=[...])``: named draws that run first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest import autotest, oneof, random, random_tensor, torch
from ci_autotest.errors import AuthorError
from tests.engine import record
from tests.projects import Project

if TYPE_CHECKING:
    from pathlib import Path


def body() -> object:
    x = random_tensor(2, dim0=random(1, 9).to(int))
    return torch.tanh(x) * oneof(2, 3)


#: x.dim1 is the open size of the tensor, 2 the number that is its first size, 3.pick the alternative.
FIRST, SECOND = {"2": 8, "x.dim1": 3, "3.pick": 1}, {"2": 1}


def drawn(case: int, **how: Any) -> dict[str, object]:
    attempt = record(body, case, examples=(FIRST, SECOND), **how)
    assert attempt.profile == "ordinary" or case > 1
    return {draw.label: draw.value for draw in attempt.draws}


def test_examples__first_cases__have_these_draws_and_the_ordinary_profile():
    first, second = drawn(0), drawn(1)
    assert {site: first[site] for site in FIRST} == FIRST
    assert second["2"] == 1
    assert [drawn(case)["2"] for case in range(2, 12)] == [
        {draw.site: draw.value for draw in record(body, case).draws}["2"] for case in range(2, 12)
    ]


def test_examples__edited_by_the_shrinker__the_edit_counts():
    assert drawn(0, edits={"2": 2})["2"] == 2
    assert drawn(0, edits={"2": 2})["x.dim1"] == 3


WRONG = {
    "no list": ({"2": 3}, "is not a list of draws. Write examples=[{'x.dim0': 3}]"),
    "no dict": ([3], "is not a list of draws. Write examples=[{'x.dim0': 3}]"),
    "empty": ([{}], "is not a list of draws. Write examples=[{'x.dim0': 3}]"),
    "name": ([{1: 3}], "is not a list of draws. Write examples=[{'x.dim0': 3}]"),
    "value": ([{"2": [3]}], "is not a list of draws. Write examples=[{'x.dim0': 3}]"),
}


@pytest.mark.parametrize(("examples", "said"), WRONG.values(), ids=WRONG)
def test_autotest__wrong_examples__says_what_to_write(examples: Any, said: str):
    with pytest.raises(AuthorError) as raised:
        autotest(examples=examples)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ({"rows": 3}, "examples[0] names the draw 'rows', which its case does not make. It has 2, 3.pick, x.dim1."),
        ({"x.dim1": 9}, "examples[0] has 'x.dim1' = 9, which is outside its range: dim of [1, 8)."),
        ({"x.dim1": 4, "0.dim1": 3}, "examples[0] gives one draw two values, as '0.dim1' and as 'x.dim1'. Keep one."),
        ({"2": 9}, "examples[0] has '2' = 9, which is outside its range: int of [1, 9)."),
    ],
    ids=["unknown", "out of range by name", "two values", "out of range"],
)
def test_examples__draw_that_the_case_does_not_make__breaks_the_test(example: dict[str, Any], said: str):
    with pytest.raises(AuthorError) as raised:
        record(body, 0, examples=(example,))
    assert said in str(raised.value)


def test_run__examples__run_first_count_in_list_and_their_finding_shrinks(tmp_path: Path):
    project = Project(tmp_path)
    project.tests(
        "@autotest(n=2, examples=[{'2': 1}, {'2': 1}, {'2': 8}])\ndef rows():\n"
        "    return torch.tanh(random_tensor(2, dim0=random(1, 9).to(int)))\n"
    )
    project.write("kernels.py", "import torch\n\n\ndef tanh(x):\n    return torch.tanh(x) + (x.shape[0] > 7)\n")
    project.substitute({"torch.tanh": "kernels.tanh"})
    assert "rows  line 3, 3 cases" in project.command("list").said
    done = project.run("--cases", "1")
    (finding,) = project.report()["findings"]
    assert (done.status, finding["case"], finding["repro_verified"]) == (1, 2, True)
    draws = project.command("draws", finding["test"], "--case", "2")
    assert "2 = 8" in draws.said or json.dumps(8) in draws.said


def refused() -> object:
    return torch.ones(2) + torch.ones(random(3, 6).to(int))


@pytest.mark.parametrize(("example", "said"), [({"1": 9}, "outside its range"), ({"7": 3}, "names the draw '7'")])
def test_examples__of_a_test_that_must_be_refused__are_checked_too(example: dict[str, int], said: str):
    assert record(refused, raises=(RuntimeError,), examples=({"1": 4},)).is_complete
    with pytest.raises(AuthorError, match=said):
        record(refused, raises=(RuntimeError,), examples=(example,))
