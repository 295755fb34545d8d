"""The tests keep their own rules: no test module imports another, and nothing is mocked."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, with the names that it takes from packages."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def broken_rules(path: Path) -> list[str]:
    return sorted(
        name
        for name in imported(path)
        if name.startswith("unittest.mock") or (name.startswith("tests.") and name.split(".")[-1].startswith("test_"))
    )


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_imports__of_a_file_of_the_tests__are_no_test_module_and_no_mock(path: Path) -> None:
    assert broken_rules(path) == []


@pytest.mark.parametrize(
    "line", ["from tests.unit.test_plan import TESTS", "from tests.unit import test_plan", "import unittest.mock"]
)
def test_imports__rule_is_broken__is_seen(line: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(line)
    assert broken_rules(tmp_path / "test_it.py")
