"""The answers of the hosts of a group become one answer: what one rank has alone is a fault that names the rank."""

from __future__ import annotations

import json

import pytest

from ci_autotest.backends.framework.response import ResponseError
from ci_autotest.backends.ranks.host_answers import WHOLE_PASS, Frame, agreed, of_lost

NOTHING = {
    "values": [], "copies": [], "gradients": [], "failure": None, "backward_failure": None, "lacking": None,
}  # fmt: skip
TENSOR = ["tensor", "float32", [1], False, True, 0]
RAISED = {"failure": [2, "RuntimeError", "no rows"]}


def frame(*buffers: bytes, **answer: object) -> Frame:
    return Frame(json.dumps([{**NOTHING, **answer}]).encode(), [memoryview(each) for each in buffers])


def tensor(data: bytes, place: object = 0, **more: object) -> Frame:
    return frame(data, values=[None, [*TENSOR[:-1], place]], **more)


def test_agreed__all_ranks_answer_the_same__is_the_first_answer():
    first = tensor(b"abcd")

    assert agreed([first, tensor(b"abcd")]) == (first, [])


@pytest.mark.parametrize(
    ("frames", "seen"),
    [
        ([tensor(b"abcd"), tensor(b"abce")], [(1, None, "rank 1 holds other bits than rank 0")]),
        ([tensor(b"abcd")] * 2 + [tensor(b"abce")] * 2, [(1, None, "ranks 2 and 3 hold other bits than ranks 0 and 1")]),
        ([tensor(b"", ["aa", 0]), tensor(b"", ["ab", 0])], [(1, None, "rank 1 holds other bits than rank 0")]),
        (
            [frame(b"abcd", values=[TENSOR]), frame(b"ab", values=[["tensor", "float16", [1], False, True, 0]])],
            [(0, None, "rank 0 has float32[1] (a leaf), rank 1 has float16[1] (a leaf)")],
        ),
        (
            [frame(values=[["plain", 3]]), frame(values=[["plain", 4]])],
            [(0, None, "rank 0 has 3, rank 1 has 4")],
        ),
        (
            [frame(b"a", values=[["module", {"w": TENSOR}]]), frame(b"b", values=[["module", {"w": TENSOR}]])],
            [(0, None, "rank 1 holds other bits than rank 0")],
        ),
        (
            [frame(b"a", gradients=[[3, TENSOR]]), frame(gradients=[[3, None]])],
            [(3, 3, "rank 0 has float32[1] (a leaf), rank 1 has nothing")],
        ),
        (
            [frame(b"a", gradients=[[[1, "w"], TENSOR]]), frame(b"b", gradients=[[[1, "w"], TENSOR]])],
            [(1, (1, "w"), "rank 1 holds other bits than rank 0")],
        ),
    ],
    ids=["elements", "of 4", "digest", "dtype", "number", "module", "gradient missing", "gradient of a parameter"],
)  # fmt: skip
def test_agreed__ranks_hold_different_values__is_a_fault_at_each(frames: list[Frame], seen: list[tuple[object, ...]]):
    found, faults = agreed(frames)

    assert (found, [(one.step, one.key, one.seen) for one in faults]) == (frames[0], seen)


@pytest.mark.parametrize(
    ("frames", "step", "key", "seen"),
    [
        ([tensor(b"a"), frame(**RAISED)], 2, None, "rank 1 raised RuntimeError, rank 0 went on"),
        (
            [frame(**RAISED), frame(failure=[1, "ValueError", "x"])], 2, None,
            "rank 0 raised RuntimeError, rank 1 raised ValueError",
        ),
        (
            [tensor(b"a"), frame(backward_failure=["RuntimeError", "x"])], -2, WHOLE_PASS,
            "rank 1 raised RuntimeError, rank 0 went on",
        ),
        ([frame(lacking=["no_counterpart", "x"]), tensor(b"a")], -1, None, "rank 0 raised NotImplementedError, rank 1 went on"),
    ],
    ids=["one", "different errors", "backward", "one lacks a function"],
)  # fmt: skip
def test_agreed__not_all_ranks_raise_one_error__is_a_failure(
    frames: list[Frame], step: int, key: int | None, seen: str
):
    found, [fault] = agreed(frames)
    [answer] = json.loads(found.head)

    assert (fault.step, fault.key, fault.seen, fault.is_call) == (step, key, seen, True)
    assert (answer["failure"] is None) is (key == WHOLE_PASS)


def test_agreed__all_ranks_raise_one_error_in_other_words__is_that_error():
    first = frame(failure=[2, "RuntimeError", "a part of [2, 1]"])

    assert agreed([first, frame(failure=[2, "RuntimeError", "a part of [1, 1]"])]) == (first, [])


def test_of_lost__one_rank_ends_and_another_waits__names_both():
    _, [fault] = of_lost({}, {1: ("ended by signal 11 (SIGSEGV)", 3)}, {0: 4})

    assert (fault.step, fault.seen) == (3, "rank 1 ended by signal 11 (SIGSEGV), rank 0 waits for ever")


def test_of_lost__a_rank_raises_and_others_wait__is_at_the_step_of_the_error():
    _, [fault] = of_lost({1: frame(**RAISED)}, {}, {0: 4, 2: 4})

    seen = "rank 1 raised RuntimeError, ranks 0 and 2 wait for ever"
    assert (fault.step, fault.seen, fault.detail) == (2, seen, "RuntimeError: no rows")


def test_agreed__an_answer_that_is_none__is_refused_with_its_rank():
    with pytest.raises(ResponseError, match="rank 1 sent an invalid answer"):
        agreed([tensor(b"a"), Frame(b"[]", [])])
