"""Frames between a worker and its host: whole, torn, oversized, garbage, and none in time."""

from __future__ import annotations

import os
import struct
import threading
import time

import pytest

from ci_autotest.host.wire import GoneError, SilentError, Wire, WireError


@pytest.fixture
def ends():
    """Return two ends that speak to one another."""
    first_read, second_write = os.pipe()
    second_read, first_write = os.pipe()
    made = Wire(first_read, first_write), Wire(second_read, second_write)
    yield made
    for wire in made:
        for fd in (wire.read_fd, wire.write_fd):
            try:
                os.close(fd)
            except OSError:
                pass


@pytest.mark.parametrize(
    ("head", "buffers"),
    [(b"{}", []), (b"", []), (b"{}", [b""]), (b"head", [b"a", b"", bytes(range(256)) * 8])],
    ids=["head", "nothing", "an empty buffer", "buffers"],
)
def test_receive__frame_is_whole__gives_what_was_sent(ends, head, buffers):
    ends[0].send(head, buffers)
    assert ends[1].receive() == (head, buffers)


@pytest.mark.parametrize(("head", "buffers"), [(b"four", []), (b"", [b"x"])], ids=["head", "buffers"])
def test_receive__peer_who_has_not_said_who_it_is__may_send_a_short_head_only(ends, head, buffers):
    ends[0].send(b"own", [])
    ends[0].send(head, buffers)

    assert ends[1].receive(at_most=3) == (b"own", [])
    with pytest.raises(WireError, match="a frame with"):
        ends[1].receive(at_most=3)


def test_receive__frame_comes_in_two_parts__is_whole_after_the_second_one(ends):
    whole = struct.pack("<II", 2, 1) + struct.pack("<Q", 3) + b"{}" + b"abc"
    for cut in (5, 17, 20):
        os.write(ends[0].write_fd, whole[:cut])
        with pytest.raises(SilentError):
            ends[1].receive(time.monotonic())
        os.write(ends[0].write_fd, whole[cut:])
        assert ends[1].receive(time.monotonic()) == (b"{}", [b"abc"])


def test_receive__two_frames_in_one_read__gives_one_after_the_other(ends):
    ends[0].send(b"first", [b"x"])
    ends[0].send(b"second")
    assert [ends[1].receive(), ends[1].receive()] == [(b"first", [b"x"]), (b"second", [])]


def test_receive__frame_is_larger_than_the_pipe__gives_it_whole(ends):
    data = os.urandom(1 << 20)
    sender = threading.Thread(target=ends[0].send, args=(b"{}", [memoryview(data)]))
    sender.start()
    found = ends[1].receive()
    sender.join()
    assert found == (b"{}", [data])


@pytest.mark.parametrize("cut", [0, 3, 8, 12, 17, 19])
def test_receive__frame_is_torn__the_other_end_is_gone(ends, cut):
    whole = struct.pack("<II", 2, 1) + struct.pack("<Q", 3) + b"{}" + b"abc"
    os.write(ends[0].write_fd, whole[:cut])
    os.close(ends[0].write_fd)
    with pytest.raises(GoneError, match="the other end is gone"):
        ends[1].receive()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (struct.pack("<II", 1 << 29, 0), "a frame with 536870912 bytes of head and 0 buffers"),
        (struct.pack("<II", 2, 1 << 20), "a frame with 2 bytes of head and 1048576 buffers"),
        (struct.pack("<IIQ", 2, 1, 1 << 60), f"a frame of {1 << 60} bytes"),
        (b"what is no frame", "a frame with 1952540791 bytes of head and 544434464 buffers"),
    ],
    ids=["head", "count", "buffer", "garbage"],
)
def test_receive__frame_says_that_it_is_larger_than_any__is_refused(ends, data, said):
    os.write(ends[0].write_fd, data)
    with pytest.raises(WireError, match=said) as caught:
        ends[1].receive()
    assert type(caught.value) is WireError


@pytest.mark.parametrize("data", [b"", b"ab", struct.pack("<II", 9, 0) + b"half"], ids=["nothing", "two", "half"])
def test_receive__no_whole_frame_in_time__is_silent(ends, data):
    os.write(ends[0].write_fd, data)
    with pytest.raises(SilentError):
        ends[1].receive(time.monotonic() + 0.05)


def test_receive__whole_frame_is_there__is_not_silent(ends):
    ends[0].send(b"{}", [b"x"])
    assert ends[1].receive(time.monotonic() + 600) == (b"{}", [b"x"])


def test_send__nobody_reads__says_so(ends):
    os.close(ends[1].read_fd)
    with pytest.raises(WireError):
        ends[0].send(b"{}")


def test_close__both_pipes_are_closed(ends):
    ends[0].close()
    with pytest.raises(GoneError):
        ends[1].receive()
