"""Marks that are none: one sentence that says what to write."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ci_autotest.errors import AuthorError
from ci_autotest.record.skips import MarkBearers, expected_failure_of, skip_reason_of


def marked(*marks: object) -> MarkBearers:
    function = SimpleNamespace(pytestmark=list(marks))
    return MarkBearers(row=(), function=function, owner=None, module=None)


def test_skip_reason_of__a_text_for_a_mark__is_refused():
    with pytest.raises(AuthorError, match=r"pytestmark has 'slow', which is no mark\. Write pytest\.mark\.NAME\."):
        skip_reason_of(marked("slow"))


@pytest.mark.parametrize("raises", ["foo", int, (ValueError, 3)])
def test_expected_failure_of__raises_is_no_exception__is_refused(raises: object):
    with pytest.raises(AuthorError, match=r"is no class of exceptions\. Write the class"):
        expected_failure_of(marked(pytest.mark.xfail(raises=raises)))


def test_expected_failure_of__raises_of_another_error__is_no_mark():
    assert expected_failure_of(marked(pytest.mark.xfail(raises=ValueError))) is None
    found = expected_failure_of(marked(pytest.mark.xfail(raises=(ValueError, AssertionError), reason="x")))
    assert found is not None
    assert found.reason == "x"
