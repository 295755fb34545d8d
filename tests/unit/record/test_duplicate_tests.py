"""Two tests of one name in a file are an error that names both lines; alternatives are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ci_autotest.errors import AuthorError
from ci_autotest.record.duplicate_tests import lost_tests, refuse_duplicate

if TYPE_CHECKING:
    from pathlib import Path

TEST = "@autotest()\ndef add():\n    pass\n"
CLASSES = "class Sums:\n    @autotest(n=3)\n    def add(self):\n        pass\n\n"
METHODS = "class Sums:\n    @autotest(n=3)\n    def add(self):\n        pass\n\n    def add(self):\n        pass\n"

REFUSED = {
    "two tests": (TEST + TEST, "tests.py defines add in line 2 and again in line 5: the first would never run. Rename one."),
    "a test and a function": (TEST + "def add():\n    pass\n", "defines add in line 2 and again in line 4"),
    "a test and a class": (TEST + "class add:\n    pass\n", "defines add in line 2 and again in line 4"),
    "three tests": (TEST * 3, "defines add in line 2 and again in line 5"),
    "methods": (METHODS, "tests.py defines Sums.add in line 3 and again in line 6"),
    "dotted decorator": (TEST.replace("@", "@ci_autotest.") + TEST, "in line 2 and again in line 5"),
    "classes": (
        METHODS.rpartition("\n    def add")[0] + "class Sums:\n    pass\n",
        "tests.py defines Sums in line 1 and again in line 5: the test of the first would never run. Rename one.",
    ),
    "options over lines": (TEST.replace("()\n", "(\n    n=3,\n)\n", 1) + TEST, "in line 4 and again in line 7"),
}  # fmt: skip
PASSED = {
    "other names": TEST + TEST.replace("add", "sub"),
    "alternatives": f"if True:\n{TEST}else:\n{TEST}".replace("\n@", "\n  @").replace("\ndef", "\n  def"),
    "a helper and then a test": "def add():\n    pass\n" + TEST,
    "functions that are no tests": "def add():\n    pass\n" * 2,
    "another decorator": TEST.replace("autotest", "not_autotest") * 2,
    "other classes": METHODS.rpartition("\n    def add")[0] + "\n" + TEST,
    "classes without tests": "class Sums:\n    pass\n" * 2,
    "no Python": "def (",
}


@pytest.mark.parametrize("name", REFUSED)
def test_lost_tests__test_that_would_vanish__names_both_lines(name: str, tmp_path: Path):
    text, said = REFUSED[name]
    (tmp_path / "tests.py").write_text(text)
    found = lost_tests(str(tmp_path / "tests.py"))
    assert said in found[0].message("tests.py")


@pytest.mark.parametrize("name", PASSED)
def test_lost_tests__no_test_vanishes__finds_none(name: str, tmp_path: Path):
    (tmp_path / "tests.py").write_text(PASSED[name])
    assert lost_tests(str(tmp_path / "tests.py")) == ()


def test_lost_tests__no_such_file__finds_none():
    assert lost_tests("<stdin>") == ()


def test_refuse_duplicate__one_of_two_tests__costs_that_test_alone(tmp_path: Path):
    (tmp_path / "tests.py").write_text(TEST + TEST + TEST.replace("add", "sub") + CLASSES * 2)
    file = str(tmp_path / "tests.py")
    assert refuse_duplicate(file, "sub") is None
    for name in ("add", "Sums.add"):
        with pytest.raises(AuthorError, match=f"defines {name.partition('.')[0]}"):
            refuse_duplicate(file, name)


@pytest.mark.parametrize("name", ["a test and a function", "a test and a class", "methods", "classes"])
def test_refuse_duplicate__no_test_replaces_the_lost_one__every_other_test_says_so(name: str, tmp_path: Path):
    (tmp_path / "tests.py").write_text(REFUSED[name][0] + TEST.replace("add", "other"))
    with pytest.raises(AuthorError, match=r"would never run"):
        refuse_duplicate(str(tmp_path / "tests.py"), "other")
