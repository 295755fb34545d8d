from __future__ import annotations

import os

import pytest

from ci_autotest.call_capture import tensor_spool
from ci_autotest.call_capture.tensor_spool import TensorSpool, read_elements


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
    monkeypatch.setattr(tensor_spool, "TENSOR_BYTES", 4)
    monkeypatch.setattr(tensor_spool, "ALL_BYTES", 6)
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
