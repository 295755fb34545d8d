"""Edits of a program: steps that stand for another one, and the numbers of those after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ci_autotest.program.edit import follows_from, rewritten, with_copies, with_methods
from ci_autotest.program.ir import Program, Ref, Step, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

MODULE = Step("call_function", "torch.nn.Linear", (2, 2), (), "module", in_setup=True)
X = Step("placeholder", "x", (TensorSpec.plain("float32", (2,)),), (), "x")
OUTPUT = "output"


def call(target: str, *args: int, in_setup: bool = False) -> Step:
    """Return a call with the values of other steps."""
    return Step("call_method", target, tuple(map(Ref, args)), (), "value", in_setup=in_setup)


def output(*args: int) -> Step:
    return Step("output", OUTPUT, tuple(map(Ref, args)), (), "output")


PROGRAM = Program((MODULE,), (X, call("relu", 1), call("add", 1, 2), output(3, 1)))


@pytest.mark.parametrize(
    ("index", "stands_for_it", "expected"),
    [
        pytest.param(
            2,
            (call("abs", 1), call("neg", 2)),
            Program((MODULE,), (X, call("abs", 1), call("neg", 2), call("add", 1, 3), output(4, 1))),
            id="two steps for one",
        ),
        pytest.param(
            2,
            (call("relu", 1), call("view_as", 2, 2)),
            Program((MODULE,), (X, call("relu", 1), call("view_as", 2, 2), call("add", 1, 3), output(4, 1))),
            id="one step more after it, which later steps use",
        ),
        pytest.param(
            3,
            (call("exp", 1), call("add", 3, 2)),
            Program((MODULE,), (X, call("relu", 1), call("exp", 1), call("add", 3, 2), output(4, 1))),
            id="one step more before it",
        ),
        pytest.param(
            0,
            (MODULE, call("double", 0, in_setup=True)),
            Program((MODULE, call("double", 0, in_setup=True)), (X, call("relu", 2), call("add", 2, 3), output(4, 2))),
            id="in the setup",
        ),
    ],
)
def test_rewritten__renumbers_later_steps(index: int, stands_for_it: tuple[Step, ...], expected: Program) -> None:
    def change(i: int, step: Step) -> Iterable[Step]:
        return stands_for_it if i == index else (step,)

    assert rewritten(PROGRAM, change) == expected


def test_with_methods__of_a_value__is_used_by_later_steps() -> None:
    to = Step("call_method", "to", (Ref(2), "half"), (), "value")

    assert with_methods(PROGRAM, "to", {2: "half"}).body == (X, call("relu", 1), to, call("add", 1, 3), output(4, 1))


def test_with_copies__of_a_call__gives_it_the_copies_alone() -> None:
    clone = Step("call_method", "clone", (Ref(1),), (), "x")

    assert with_copies(PROGRAM, 3, (1,)).body == (X, call("relu", 1), clone, call("add", 3, 2), output(4, 1))


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        pytest.param((), [], id="of nothing"),
        pytest.param((2,), [1, 2], id="of one step"),
        pytest.param((0, 3), [0, 1, 2, 3], id="of two steps"),
    ],
)
def test_follows_from__of_steps__has_them_and_what_they_use(indices: tuple[int, ...], expected: list[int]) -> None:
    assert sorted(follows_from(PROGRAM.steps, *indices)) == expected
