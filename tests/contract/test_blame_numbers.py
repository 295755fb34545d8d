"""The table of the numbers that the judgement rests on has each of them, and names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"\| `(\w+\.\w+)` \| [^|]+ \| [^|]+ \| (?:`(\S+): (\w+)`)? \|")


def rows():
    page = (ROOT / "docs/explanation/blame.md").read_text("utf-8")
    return ROW.findall(page[page.index("## The numbers of the judgement") :])


def is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    if isinstance(value, ast.Tuple):
        return all(map(is_number, value.elts))
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.Constant) and type(value.value) in {int, float}


def numbers():
    """Yield the constants of ``alignment/blame`` that are numbers, by module and name."""
    for path in sorted((ROOT / "ci_autotest/alignment/blame").glob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.AnnAssign) and node.value is not None and is_number(node.value):
                yield f"{path.stem}.{node.target.id}"


def test_table__has_each_number():
    assert sorted(name for name, _, _ in rows()) == sorted(numbers())


def test_table__tuned_numbers__have_a_guard():
    assert [name for name, file, _ in rows() if not file] == ["oracle._SPREAD", "oracle._LARGE"]


def test_table__names_tests_that_exist():
    found = {path.name: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    assert [(file, test) for _, file, test in rows() if file and test not in found.get(file, "")] == []
