"""Places: what differs is a value, and a report's text of it is read back as that value."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.values.verdict import (
    BackwardPass,
    Call,
    Cotangent,
    Gradient,
    Misalignment,
    State,
    Value,
    is_of_backward,
    place_of,
)
from tests.verdict_samples import PLACES


@pytest.mark.parametrize(("place", "kind", "text"), PLACES, ids=[text for *_, text in PLACES])
def test_place_of__text_of_a_place__is_that_place(place, kind, text):
    told = Misalignment(kind=kind, step=0, at=place, candidate="a", reference="b")
    assert (told.what, place_of(text)) == (text, place)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=Misalignment) == told


@pytest.mark.parametrize("text", ["", "x", "the gradient of x", "RuntimeError: backward pass", "value of"])
def test_place_of__any_other_text__is_no_place(text):
    assert place_of(text) is None


def test_is_of_backward__names_that_look_like_it__go_by_the_place():
    misleading = [Value(name="backward pass"), State(name="gradient of x"), Call(name="gradient put into output")]
    assert not any(map(is_of_backward, [*misleading, None]))
    assert all(map(is_of_backward, [Gradient(name="x"), Cotangent(position=0), BackwardPass()]))


@pytest.mark.parametrize(
    "text",
    [
        "x\nimport os\n# after the run", "x\rimport os\r# after the run", "value of x\x0b[1]", "state a\u2028b after the run",
        f"value of x[{'1' * 5000}] after\n",
    ],
)  # fmt: skip
def test_place_of__a_line_ends_in_it__is_no_place(text):
    assert place_of(text) is None


def test_place_of__number_of_5000_digits__is_no_element():
    assert place_of(f"value of x[{'1' * 5000}]").element is None
