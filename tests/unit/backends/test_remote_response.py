"""What a host tells: read as it was told, and refused with a message in each way that it can be wrong."""

from __future__ import annotations

import hashlib
import json
import struct

import pytest
import torch

from ci_autotest.backends.framework.response import ResponseError, about_of, failure_of, fill, readers_of
from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.trace import Failure, Trace

FLOATS = struct.pack("<3f", 1.0, -0.0, 2.5)


def answer(*values, copies=(), gradients=(), failure=None):
    told = {"values": values, "copies": copies, "gradients": gradients, "failure": failure}
    return json.dumps([{**told, "backward_failure": None, "lacking": None}]).encode()


def reader(*values, buffers=(FLOATS,), fetched=None, **told):
    return readers_of(answer(*values, **told), buffers, lambda _: fetched)[0]


def tensor(dtype="float32", shape=(3,), requires_grad=False, is_leaf=True, where=0):
    return ["tensor", dtype, list(shape) if isinstance(shape, tuple) else shape, requires_grad, is_leaf, where]


def test_tensor__elements_are_in_a_buffer__are_those_bits():
    found = reader().tensor(tensor())
    assert (found.dtype, byte_view(found).tobytes()) == (torch.float32, FLOATS)


@pytest.mark.parametrize(
    ("dtype", "data", "shape"),
    [("bfloat16", b"\x80\x3f\xc1\x7f", (2,)), ("complex64", struct.pack("<4f", 1, 2, 3, 4), (2, 1)), ("bool", b"\1\0", (2,)),
     ("int64", b"", (0, 4)), ("float64", struct.pack("<d", 0.5), ())],
)  # fmt: skip
def test_tensor__of_each_kind__has_dtype_shape_and_bits(dtype, data, shape):
    found = reader(buffers=[data]).tensor(tensor(dtype, shape))
    assert (str(found.dtype), tuple(found.shape), byte_view(found).tobytes()) == (f"torch.{dtype}", shape, data)


@pytest.mark.parametrize(
    ("tensor", "data"),
    [
        pytest.param(torch._efficientzerotensor(2, dtype=torch.float32), bytes(8), id="zeros without memory"),
        pytest.param(torch.ones([1] * 65), struct.pack("<f", 1.0), id="more dimensions than an array can have"),
        pytest.param(torch.ones(10).bfloat16()[::5][:1], b"\x80\x3f", id="one element with a stride"),
        pytest.param(torch.ones(10).bfloat16()[::5], b"\x80\x3f\x80\x3f", id="two elements with a stride"),
    ],
)
def test_byte_view__tensor_that_numpy_cannot_hold__are_its_bytes(tensor, data):
    assert byte_view(tensor).tobytes() == data


@pytest.mark.parametrize("is_leaf", [True, False])
def test_tensor__requires_grad__has_the_flags_that_were_told(is_leaf):
    found = reader().tensor(tensor(requires_grad=True, is_leaf=is_leaf))
    assert (found.requires_grad, found.is_leaf) == (True, is_leaf)


@pytest.mark.parametrize("is_same", [True, False])
def test_tensor__told_by_its_digest__is_asked_for_only_where_it_differs(is_same):
    expected = torch.tensor([1.0, -0.0, 2.5 if is_same else 3.5])
    asked = []
    (one,) = readers_of(answer(), [], lambda numbers: asked.append(numbers) or [FLOATS])
    found = one.tensor(tensor(where=[hashlib.blake2b(FLOATS, digest_size=16).hexdigest(), 4]), expected)
    assert (byte_view(found).tobytes(), asked) == (FLOATS, [] if is_same else [[4]])


def test_tensor__digest_is_that_of_another_dtype__is_asked_for():
    expected = torch.tensor([1.0, -0.0, 2.5]).view(torch.int32)
    found = reader(fetched=[FLOATS]).tensor(
        tensor(where=[hashlib.blake2b(FLOATS, digest_size=16).hexdigest(), 0]), expected
    )
    assert found.dtype is torch.float32


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (None, None), (["plain", 3], 3), (["plain", {"float": "inf"}], float("inf")), (["items", 2], (None, None)),
        (["other", "Size"], "a Size"), (["plain", {"tuple": [1, 2]}], (1, 2)),
    ],
    ids=str,
)  # fmt: skip
def test_value__that_is_no_tensor__is_what_was_told(entry, expected):
    assert reader().value(entry) == expected


def test_value__module__has_its_state():
    found = reader().value(["module", {"weight": tensor()}])
    assert [(name, byte_view(each).tobytes()) for name, each in found.state_dict().items()] == [("weight", FLOATS)]


@pytest.mark.parametrize(
    "entry",
    [
        5, "tensor", [], {}, ["unknown"], ["tensor"], ["items", -1], ["items", 10**12], ["items", "2"], ["module", []],
        ["other", 3], ["plain"], ["plain", ["unknown", 1]], ["plain", []], ["plain", ["float", "x"]],
        ["plain", {"tensor": 1}], ["plain", {"slice": []}],
        tensor("float33"), tensor(["float32"]), tensor(shape="ab"), tensor(shape=[-1]), tensor(shape=["3"]),
        tensor(shape=[True]), tensor(shape=[10**30]), tensor(requires_grad="no"), tensor(is_leaf=1), tensor()[:-1],
        [*tensor(), 1], tensor(where=1), tensor(where=-1), tensor(where=None), tensor(where=True), tensor(where=[]),
        tensor(where=["digest"]), tensor(where=[1, 2]), tensor(where={}), ["module", {"weight": 3}],
        ["module", {"weight": ["plain", 1]}],
    ],
    ids=str,
)  # fmt: skip
def test_value__tells_nothing__is_refused(entry):
    with pytest.raises(ResponseError, match=r"^the host described .*, which is invalid\.$"):
        reader().value(entry)


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 2), (0,), (1 << 40, 1 << 40)])
def test_tensor__has_other_bytes_than_its_shape__is_refused(shape):
    with pytest.raises(ResponseError, match=r"the host sent 12 bytes for a tensor of \d+ bytes\."):
        reader().tensor(tensor(shape=shape))


@pytest.mark.parametrize("fetched", [[], [FLOATS, FLOATS]])
def test_tensor__another_number_is_sent_than_asked_for__is_refused(fetched):
    with pytest.raises(ResponseError, match=f"the host was asked for one tensor and sent {len(fetched)}."):
        reader(fetched=fetched).tensor(tensor(where=["digest", 0]))


@pytest.mark.parametrize(
    "head",
    [
        b"", b"{", b"[]", b"[{}]", b'[{"values": 1}]', answer()[1:-1], b"[[]]", answer().replace(b"}", b', "more": 1}'), b"[" * 100_000,
        answer(failure=[1, 2, 3]), answer(gradients=[["x", None]]), b"\xff\xfe",
    ],
    ids=["empty", "torn", "none", "nothing", "wrong", "alone", "a list", "more", "deep", "failure", "gradient", "no text"],
)  # fmt: skip
def test_reader__head_is_no_answer__is_refused(head):
    with pytest.raises(ResponseError, match="the host sent an invalid answer"):
        readers_of(head, [], lambda _: [])


def trace_of(count, *, snapshots=False):
    trace = Trace()
    trace.values, trace.facts = [None] * count, [None] * count
    if snapshots:
        trace.observations = [None] * count
    return trace


def test_fill__values_have_moved__are_put_where_they_were_recorded():
    trace = trace_of(3)
    fill(trace, reader(["plain", 1], ["plain", 2], ["plain", 3]), [2, -1, 0], None)
    assert trace.values == [3, None, 1]


def test_fill__host_tells_fewer_values__the_others_were_not_seen():
    trace = trace_of(3)
    fill(trace, reader(["plain", 1]), [0, 1, 2], None)
    assert trace.values == [1, None, None]


def test_fill__copies_were_asked_for__are_observed():
    trace = trace_of(1, snapshots=True)
    fill(trace, reader(tensor(), copies=[tensor()]), [0], None)
    observed = trace.observations[0]
    assert observed is not None
    assert (observed.metadata.dtype, observed.data.tolist()) == ("float32", [1.0, 0.0, 2.5])


def test_fill__copies_were_not_asked_for__are_passed_over():
    trace = trace_of(1)
    fill(trace, reader(["plain", 1], copies=[tensor()]), [0], None)
    assert (trace.values, trace.observations) == ([1], [])


@pytest.mark.parametrize(("at", "recorded"), [(0, 0), (1, 2), (2, 2), (9, 3), (-5, 0)])
def test_failure_of__step_has_moved__is_the_one_recorded(at, recorded):
    found = failure_of(reader(failure=[at, "ValueError", "no"]).answer, [0, -1, 2, 3])
    assert found == Failure(recorded, "ValueError", "no")


def test_failure_of__nothing_raised__is_none():
    assert failure_of(reader().answer, [0]) is None


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"{", "the host sent an invalid answer"),
        (b'{"has": [1], "devices": []}', "the host sent an invalid answer"),
        (b'{"has": [true], "devices": [], "more": 1}', "the host sent an invalid answer"),
        (b'{"has": [true], "devices": []}', "the host was asked about 2 operators and answered for 1."),
    ],
    ids=["torn", "wrong", "more", "count"],
)
def test_about_of__is_no_answer__is_refused(head, said):
    with pytest.raises(ResponseError, match=said):
        about_of(head, 2)


def test_about_of__says_what_is_there():
    found = about_of(b'{"has": [true, false], "devices": ["cpu"]}', 2)
    assert (found.has, found.devices) == ([True, False], ["cpu"])
