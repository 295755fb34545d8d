"""Each mutation of a source changes one thing, and what only refuses arguments is left alone."""

from __future__ import annotations

import ast

import pytest

from ci_autotest.power.source_mutants import mutated, mutations_of


def function(body: str) -> ast.FunctionDef:
    found = ast.parse(f"def f(x, y):\n    {body}").body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


@pytest.mark.parametrize(
    ("body", "after"),
    [
        pytest.param("return x < y", {"x <= y"}, id="comparison"),
        pytest.param("return x - y", {"x + y", "x"}, id="sign and dropped term"),
        pytest.param("return x * y", {"x / y", "x", "y"}, id="factor"),
        pytest.param("return -x", {"x"}, id="negation"),
        pytest.param("return 0.5", {"0.55", "-0.5"}, id="float"),
        pytest.param("return 3", {"4", "2"}, id="integer"),
        pytest.param("return True", {"False"}, id="switch"),
        pytest.param("return x and y", {"x or y", "x", "y"}, id="logic"),
        pytest.param("return x if y else 2", {"x", "2", "x if y else 3", "x if y else 1"}, id="branch"),
        pytest.param("return t.amax(x, dim=y)", {"t.amin(x, dim=y)", "t.amax(x)"}, id="opposite and left-out keyword"),
        pytest.param("return where(x, y)", {"where(y, x)"}, id="swapped arguments"),
    ],
)
def test_mutations_of__one_expression__are_all_of_these(body, after):
    source = function(body)

    changed = {ast.unparse(mutated(source, each.slot, each.alternative).body[0]) for each in mutations_of(source)}

    assert changed == {f"return {each}" for each in after}


@pytest.mark.parametrize("body", ["raise ValueError(1)", "check(x < 1)", "'a text'", "assert x < 1"])
def test_mutations_of__what_only_refuses__are_none(body):
    assert mutations_of(function(body)) == []


def test_mutated__source__stays_as_it_is():
    source = function("return x + 1")
    before = ast.dump(source)

    mutated(source, mutations_of(source)[0].slot, 0)

    assert ast.dump(source) == before
