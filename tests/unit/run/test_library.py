"""The tests that a worker has imported: found by name, bound once, each case with an object of its own."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.run.worker.tests import Library

SOURCE = """

import pytest
from ci_autotest import autotest, random_tensor, torch

class TestCounting:
    def __init__(self):
        self.seen = 0

    @autotest()
    def test_count(self):
        self.seen += 1
        return self.seen

@pytest.mark.parametrize("number", [1, 2])
@autotest()
def test_row(number):
    return number
"""


@pytest.fixture
def library(tmp_path):
    (tmp_path / "test_some.py").write_text(SOURCE)
    return Library(tmp_path)


def test_find__method__each_call_has_an_object_of_its_own(library):
    (test,) = (test for test in library.tests("test_some.py") if "Counting" in test.name)
    body = library.find(test)[1]
    assert [body(), body(), library.find(test)[1]()] == [1, 1, 1]


def test_find__asked_again__is_the_same_body(library):
    test = library.tests("test_some.py")[0]
    assert library.find(test)[1] is library.find(test)[1]


def test_find__rows_of_parametrize__each_its_own(library):
    rows = [test for test in library.tests("test_some.py") if "row" in test.name]
    assert [library.find(test)[1]() for test in rows] == [1, 2]


def test_find__no_such_test__is_an_error(library):
    test = library.tests("test_some.py")[0]
    with pytest.raises(LookupError, match="defines no test"):
        library.find(msgspec.structs.replace(test, name="gone"))
