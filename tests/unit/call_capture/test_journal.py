from __future__ import annotations

import os

from ci_autotest.call_capture.journal import Journal, read_journal
from ci_autotest.call_capture.observation import Capture, ObservedCall


def call(number: int, target: str = "exp") -> ObservedCall:
    return ObservedCall(
        number=number, op="call_method", target=target, args=[], kwargs=[], modes=[], tensors=[], place="a.py:1"
    )


def test_read_journal__process_that_did_not_start__is_none(tmp_path):
    assert read_journal(tmp_path / "calls") is None


def test_read_journal__no_end__has_what_was_not_withdrawn(tmp_path):
    journal = Journal(tmp_path / "calls")
    journal.add(call(0))
    journal.add(call(1, "sin"))
    journal.withdraw(1)
    journal.add(call(1, "cos"))
    assert read_journal(tmp_path / "calls") == Capture((call(0), call(1, "cos")), is_complete=False)


def test_read_journal__half_a_line__is_left_out(tmp_path):
    path = tmp_path / "calls"
    Journal(path).add(call(0))
    with path.open("ab") as file:
        file.write(b'call {"number":1,"op')
    found = read_journal(path)
    assert found is not None
    assert [one.number for one in found.calls] == [0]


def test_read_journal__end__replaces_the_calls(tmp_path):
    journal = Journal(tmp_path / "calls")
    journal.add(call(0))
    journal.end(Capture((call(5),), torch="2"))
    assert read_journal(tmp_path / "calls") == Capture((call(5),), torch="2")


def test_journal__forked_child__writes_nothing(tmp_path):
    journal = Journal(tmp_path / "calls")
    child = os.fork()
    if child == 0:
        journal.add(call(0))
        os._exit(0)
    os.waitpid(child, 0)
    assert read_journal(tmp_path / "calls") == Capture(is_complete=False)
