"""A class is found by its name: no two modules of the package, or texts of scripts in them, have one of the same name."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import ci_autotest

ROOT = Path(ci_autotest.__file__).parent
#: A script of ranks raises the error that the report names.
TWICE = {"RankError"}


def test_classes__of_the_package_and_of_the_scripts_that_it_writes__have_names_of_their_own():
    found = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        for name in re.findall(r"^\s*class (\w+)[:(]", path.read_text("utf-8"), re.MULTILINE):
            found[name].add(str(path.relative_to(ROOT)))
    assert {name for name, paths in found.items() if len(paths) > 1} == TWICE
