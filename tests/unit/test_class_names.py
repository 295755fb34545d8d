"""A class is found by its name: no two modules of the package have one of the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import ci_autotest

ROOT = Path(ci_autotest.__file__).parent


def test_classes__of_the_package__have_names_of_their_own():
    found = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
