"""Places: what differs is a value with a text."""

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
    printable,
)
from tests.verdict_samples import PLACES


@pytest.mark.parametrize(("place", "kind", "text"), PLACES, ids=[text for *_, text in PLACES])
def test_place__its_text__is_that_of_the_report(place, kind, text):
    told = Misalignment(kind=kind, step=0, at=place, candidate="a", reference="b")
    assert told.what == text
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=Misalignment) == told


def test_is_of_backward__names_that_look_like_it__go_by_the_place():
    misleading = [Value(name="backward pass"), State(name="gradient of x"), Call(name="gradient put into output")]
    assert not any(map(is_of_backward, [*misleading, None]))
    assert all(map(is_of_backward, [Gradient(name="x"), Cotangent(position=0), BackwardPass()]))


@pytest.mark.parametrize("name", ["x\nimport os\n#", "x\rimport os\r#", "x\x0b", "a\u2028b"])
def test_printable__a_line_ends_in_a_name__is_no_place(name: str):
    assert printable(State(name=name)) is None
    assert printable(Gradient(name="x", parameter=name)) is None
    assert printable(Value(name="x", element=1)) == Value(name="x", element=1)
