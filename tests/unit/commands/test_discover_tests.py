"""Discovery of tests: what is shown while files are imported."""

from __future__ import annotations

from typing import Any

import pytest

from ci_autotest.commands.request import NothingFoundError, discover_tests
from ci_autotest.discovery import Selection
from ci_autotest.run.messages import Discovered


class EmptyFiles:
    """A pool whose files have no tests."""

    def discover(self, *_: Any) -> Discovered:
        return Discovered(tests=[])


def test_discover_tests__each_file__is_shown_before_it_is_imported():
    shown: list[str] = []
    pool: Any = EmptyFiles()
    with pytest.raises(NothingFoundError):
        discover_tests(pool, Selection(("a.py", "b.py"), {}, 2, ()), show=shown.append)
    assert shown == ["importing the tests: file 1 of 2, a.py", "importing the tests: file 2 of 2, b.py"]
