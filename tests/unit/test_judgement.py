"""Places: what differs is a value, and a report's text of it is read back as that value."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.judgement import (
    BackwardPass,
    Call,
    Cotangent,
    Gradient,
    InFlight,
    Misalignment,
    Result,
    State,
    Value,
    is_of_backward,
    place_of,
)

#: Each place with its text; user's names among them that look like our own words.
PLACES = [
    (Value(name="softmax"), "value", "value of softmax"),
    (Value(name="sort", element=1), "value", "value of sort[1]"),
    (Value(name="sort", aspect="dtype", element=0), "dtype", "dtype of sort[0]"),
    (Value(name="x", aspect="shape"), "shape", "shape of x"),
    (Value(name="x", aspect="metadata"), "metadata", "metadata of x"),
    (Value(name="x", aspect="memory"), "aliasing", "memory of x"),
    (Value(name="x", aspect="end"), "mutation", "x after the run"),
    (Gradient(name="x"), "gradient", "gradient of x"),
    (Gradient(name="linear", parameter="0.weight"), "gradient", "gradient of linear.0.weight"),
    (Gradient(name="linear", parameter="w after the run"), "gradient", "gradient of linear.w after the run"),
    (Cotangent(position=2), "mutation", "gradient put into output 2, which the backward pass wrote to"),
    (State(name="running_mean"), "state", "state running_mean after the run"),
    (State(name="gradient of x after the run"), "state", "state gradient of x after the run after the run"),
    (State(), "state", "names of the state after the run"),
    (Call(name="exp"), "error", "call of exp"),
    (BackwardPass(), "leniency", "backward pass"),
    (BackwardPass(), "timeout", "in its backward pass"),
    (InFlight(target="torch.exp"), "crash", "in torch.exp"),
    (Result(), "error", "result"),
    (Value(name="exp"), "graph", "value of exp, as a graph"),
]


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
