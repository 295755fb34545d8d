from __future__ import annotations

import os

import pytest

from ci_autotest.call_capture import journal
from ci_autotest.call_capture.journal import Journal, TensorSpool, read_elements, read_journal
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


@pytest.fixture
def spool(tmp_path):
    found = TensorSpool(tmp_path / "data")
    yield found
    found.close()


def test_tensor_spool__elements__are_read_at_their_place(spool):
    assert [spool.add(b"abc"), spool.add(b""), spool.add(b"de")] == [0, 3, 3]
    assert [read_elements(spool.path, *at) for at in ((0, 3), (3, 0), (3, 2), (3, 3))] == [b"abc", b"", b"de", None]


def test_tensor_spool__rewound__the_next_elements_take_the_place(spool):
    spool.add(b"abc")
    spool.add(b"de")
    spool.rewind(3)
    assert (spool.add(b"fg"), read_elements(spool.path, 3, 2)) == (3, b"fg")


def test_tensor_spool__limits__are_those_of_one_tensor_and_of_all(spool, monkeypatch):
    monkeypatch.setattr(journal, "TENSOR_BYTES", 4)
    monkeypatch.setattr(journal, "ALL_BYTES", 6)
    first = [spool.has_room_for(size) for size in (4, 5)]
    spool.add(b"abcd")
    assert (first, [spool.has_room_for(size) for size in (0, 2, 3)]) == ([True, False], [True, True, False])


def test_tensor_spool__forked_child__has_no_room(spool):
    child = os.fork()
    if child == 0:
        os._exit(int(spool.has_room_for(1)))
    assert (os.waitpid(child, 0)[1], spool.has_room_for(1)) == (0, True)


def test_tensor_spool__file_that_cannot_be_written__program_goes_on(tmp_path):
    spool = TensorSpool(tmp_path / "data")
    spool.close()
    assert (spool.add(b"abc"), spool.size) == (None, 0)
