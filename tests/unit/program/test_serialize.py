"""Programs as files: what was written is read, and nothing else is."""

from __future__ import annotations

import json

import pytest
import torch as real
from safetensors.torch import load

from ci_autotest import cpu_device, random_tensor, torch
from ci_autotest.alignment.recordings import to_live, to_recording, with_expected
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.errors import ProgramError
from ci_autotest.program.note import FxNote, Note, note_of
from ci_autotest.program.recording import Recording
from ci_autotest.program.serialize import PROGRAM_BYTES, SCHEMA, decode, encode_program, encode_tensors
from tests.engine import judged, record


def x(**how):
    return random_tensor(ndim=2, dim0=2, dim1=3, **how)


def no_grad():
    value = x()
    with torch.no_grad():
        value = value * 2
    return value + 1


def modules():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3))
    return module.eval()(x())


BODIES = {
    "call": lambda: torch.softmax(x(), dim=-1),
    "numbers": lambda: x().clamp(max=float("inf")) * float("nan") * -0.0 * 1e-45,
    "complex number": lambda: x(dtype=complex) * (1 - 2j),
    "infinite complex number": lambda: x(dtype=complex) * complex(float("inf"), float("nan")),
    "large integer": lambda: x(dtype=int) + 2**62,
    "slices": lambda: x()[:, ::2][..., None],
    "lists and tuples": lambda: (torch.cat([x(), x()]), torch.sum(x(), (0, 1))),
    "strings": lambda: torch.einsum("ij->ji", x()),
    "dtypes and devices": lambda: x().to(torch.float64).to(cpu_device()),
    "constants": lambda: x().clone(memory_format=torch.contiguous_format),
    "modes": no_grad,
    "seeds": lambda: torch.rand_like(x()),
    "modules": modules,
    "tuples": lambda: torch.max(x(), 1),
    "unicode": lambda: torch.nn.functional.interpolate(x()[None], size=5, mode="nearest"),
    **{
        str(dtype): lambda dtype=dtype: x(dtype=dtype) * 1
        for dtype in (
            real.float16, real.bfloat16, real.float32, real.float64, real.complex64, real.complex128, real.int8,
            real.uint8, real.int16, real.int32, real.int64,
        )
    },
    "bool": lambda: ~x(dtype=bool),
    "empty": lambda: random_tensor(ndim=2, dim0=0, dim1=3) * 2,
    "0-dim": lambda: random_tensor(ndim=0) * 2,
}  # fmt: skip


def recorded(body, **how) -> Recording:
    live = live_of(record(body, **how))
    return with_expected(to_recording(live, Note(test="a::b", draws=[["0", "int", 1]])), live, TorchBackend())


def files(recording: Recording | None = None) -> tuple[dict, bytes]:
    recording = recording or recorded(BODIES["call"])
    return json.loads(encode_program(recording)), encode_tensors(recording)


def read(plain: object, tensors: bytes) -> Recording:
    return decode(json.dumps(plain).encode(), tensors)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("profile", ["ordinary", "non_contiguous", "special"])
def test_decode__what_was_encoded__is_the_same(body, profile):
    recording = recorded(body, profile=profile)
    again = decode(encode_program(recording), encode_tensors(recording))
    assert repr(again.program) == repr(recording.program)  # NaN equals nothing, its text does
    assert (dict(again.tensors), again.note, again.expected) == (
        dict(recording.tensors), recording.note, recording.expected,
    )  # fmt: skip
    assert encode_program(again) == encode_program(recording)


def test_encode_tensors__after_decode__same_bytes():
    recording = recorded(BODIES["modules"])
    first = encode_tensors(recording)
    assert {encode_tensors(decode(encode_program(recording), first)) for _ in range(5)} == {first}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("profile", ["ordinary", "non_contiguous"])
def test_to_live__of_a_recording__runs_to_the_same_bits(body, profile):
    attempt = record(body, profile=profile)
    assert attempt.refused is None, attempt.trace.failure
    recording = to_recording(live_of(attempt))
    live = to_live(decode(encode_program(recording), encode_tensors(recording)))
    again = attempt._replace(program=live.program, sources=dict(live.sources), cotangents=dict(live.cotangents))
    assert judged(again, TorchBackend()).verdict.outcome == "aligned"


def test_encode_tensors__any_dtype__is_read_by_the_library():
    recording = recorded(BODIES["torch.bfloat16"])
    found = load(encode_tensors(recording))
    assert found["t0"].dtype is real.bfloat16
    assert found["t0"].numel() == 6


def test_encode_program__json__is_strict():
    text = encode_program(recorded(BODIES["numbers"])).decode()

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse)["schema"] == SCHEMA


def test_with_expected__differentiable_program__holds_outputs_and_gradients():
    recording = recorded(lambda: torch.nn.Linear(3, 2)(x()))
    assert {"output_0", "gradient_0.weight", "gradient_0.bias"} <= set(recording.expected)
    assert len([key for key in recording.expected if key.startswith("gradient_")]) == 3
    assert set(recording.expected) <= set(recording.tensors)


@pytest.mark.parametrize("size", [0, 1, 100, -1], ids=["empty", "one byte", "a part", "all but one byte"])
def test_decode__truncated_program__is_refused(size):
    recording = recorded(BODIES["call"])
    with pytest.raises(ProgramError, match=r"program\.json is damaged or edited"):
        decode(encode_program(recording).rstrip()[:size], encode_tensors(recording))


@pytest.mark.parametrize(
    "size", [0, 4, 8, 20, -1], ids=["empty", "no head", "no table", "half a table", "a byte missing"]
)
def test_decode__truncated_tensors__are_refused(size):
    recording = recorded(BODIES["call"])
    with pytest.raises(ProgramError, match="the tensor file is damaged or truncated"):
        decode(encode_program(recording), encode_tensors(recording)[:size])


def edited(change) -> tuple[dict, bytes]:
    plain, tensors = files()
    change(plain)
    return plain, tensors


def nested(depth: int) -> object:
    found: object = 1
    for _ in range(depth):
        found = {"list": [found]}
    return found


def argument(value: object):
    return lambda plain: plain["body"][1]["args"].append(value)


def step(**changes):
    return lambda plain: plain["body"][1].update(changes)


def spec(**changes):
    return lambda plain: plain["body"][0]["args"][0]["tensor"].update(changes)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(step(target="os.system", args=["id"]), id="os.system"),
        pytest.param(step(target="builtins.eval"), id="eval"),
        pytest.param(step(target="torch.load"), id="torch.load"),
        pytest.param(step(op="call_method", target="__reduce__"), id="__reduce__"),
        pytest.param(step(op="exec"), id="opcode"),
        pytest.param(step(args="text"), id="args of a wrong type"),
        pytest.param(step(extra=1), id="foreign key of a step"),
        pytest.param(step(modes=["autocast"]), id="unknown mode"),
        pytest.param(step(kwargs=[["x; import os", 1]]), id="keyword that is no name"),
        pytest.param(step(kwargs=[["a"]]), id="keyword without a value"),
        pytest.param(lambda plain: plain.update(extra=1), id="foreign key"),
        pytest.param(lambda plain: plain.pop("body"), id="no body"),
        pytest.param(lambda plain: plain.update(body=[]), id="empty body"),
        pytest.param(lambda plain: plain.update(schema="ci-autotest/program/2"), id="another schema"),
        pytest.param(lambda plain: plain["body"].pop(), id="no output"),
        pytest.param(argument({"ref": 9}), id="reference to a later step"),
        pytest.param(argument({"ref": -1}), id="negative reference"),
        pytest.param(argument({"ref": True}), id="reference that is a boolean"),
        pytest.param(argument({"ref": 0, "more": 1}), id="two keys in one argument"),
        pytest.param(argument({"code": "1"}), id="unknown argument"),
        pytest.param(argument([1]), id="bare list"),
        pytest.param(argument({}), id="empty object"),
        pytest.param(argument({"dtype": "load"}), id="dtype that is none"),
        pytest.param(argument({"device": "cuda:0; x"}), id="device that is none"),
        pytest.param(argument({"constant": "torch.load"}), id="constant that is a function"),
        pytest.param(argument({"tuple": [{"constant": "torch.load"}]}), id="function inside a tuple"),
        pytest.param(argument({"float": "1.0"}), id="float as text"),
        pytest.param(argument({"complex": [1]}), id="half a complex number"),
        pytest.param(argument({"complex": ["1", 2]}), id="text in a complex number"),
        pytest.param(argument({"slice": [1, 2]}), id="slice of two"),
        pytest.param(argument({"mapping": [["a", 1, 2]]}), id="mapping of triples"),
        pytest.param(argument({"mapping": [7]}), id="mapping of numbers"),
        pytest.param(argument({"tensor": {"dtype": "float32"}}), id="half a spec"),
        pytest.param(argument(nested(17)), id="nested too deep"),
        pytest.param(argument(nested(200)), id="nested far too deep"),
        pytest.param(spec(shape=[10**9, 10**9]), id="huge shape"),
        pytest.param(spec(storage_size=10**12), id="huge storage"),
        pytest.param(spec(shape=[-1]), id="negative shape"),
        pytest.param(spec(dtype="object"), id="dtype of objects"),
        pytest.param(spec(shape=[2.5]), id="half an element"),
        pytest.param(lambda plain: plain.update(expected={"output_0": 1}), id="expected of a wrong type"),
        pytest.param(lambda plain: plain["cotangents"].append(plain["cotangents"][0]), id="cotangent too many"),
    ],
)  # fmt: skip
def test_decode__edited_program__is_refused(change):
    with pytest.raises(ProgramError):
        read(*edited(change))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"], ids=str)
def test_decode__number_that_json_does_not_have__is_refused(text):
    plain, tensors = files()
    plain["body"][1]["args"].append("HERE")
    with pytest.raises(ProgramError):
        decode(json.dumps(plain).replace('"HERE"', text).encode(), tensors)


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe{}", b"[]", b"null", b"[" * 100_000, b'{"a":' * 5000],
    ids=["no text", "list", "null", "deep list", "deep object"],
)
def test_decode__what_is_no_program__is_refused(text):
    with pytest.raises(ProgramError):
        decode(text, files()[1])


def test_decode__too_large__is_refused():
    with pytest.raises(ProgramError, match="is too large"):
        decode(b" " * (PROGRAM_BYTES + 1), b"")


def test_decode__data_of_another_program__are_refused():
    plain, _ = files()
    with pytest.raises(ProgramError, match="t0"):
        read(plain, encode_tensors(recorded(BODIES["empty"])))


def head(table: dict, data: bytes) -> bytes:
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "tensors",
    [
        pytest.param(head({"t0": {"dtype": "F32", "shape": [6], "data_offsets": [0, 10**15]}}, bytes(24)), id="offsets beyond the file"),
        pytest.param(head({"t0": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 24]}}, bytes(24)), id="shape beyond the data"),
        pytest.param(head({"t0": {"dtype": "F32", "shape": [6], "data_offsets": [24, 0]}}, bytes(24)), id="offsets backward"),
        pytest.param(b"\xff" * 8 + b"{}", id="a head of 2^64 bytes"),
        pytest.param(head({"t0": 1}, b""), id="table of numbers"),
    ],
)  # fmt: skip
def test_decode__hostile_tensor_file__is_refused(tensors):
    with pytest.raises(ProgramError):
        read(files()[0], tensors)


def test_decode__note__is_data_and_nothing_else():
    recording = recorded(BODIES["call"])
    hostile = {"__class__": "x", "backend": "fx", "transform": "os.system", "n": [1, None, {"a": 2.5}]}
    made = Recording(recording.program, recording.tensors, note_of(hostile), recording.expected)
    assert decode(encode_program(made), encode_tensors(made)).note == Note(side=FxNote(transform="os.system"))


@pytest.mark.parametrize("shape", [(), (2,), (0, 3), (1, 2)], ids=str)
def test_to_live__storage_longer_than_its_view__is_read(shape):
    strides = {(): [], (2,): [1], (0, 3): [3, 1], (1, 2): [2, 1]}[shape]
    plain, tensors = edited(spec(shape=list(shape), strides=strides))  # the storage has 6 elements
    without = {"cotangents": [], "expected": {}, "values": {}, "sha256": {}}
    live = to_live(read({**plain, **without}, only(tensors, "t0")))
    assert TorchBackend().run(live.program, live.sources).values[0].shape == shape


def only(tensors: bytes, name: str) -> bytes:
    """Return the tensor file with one tensor of it."""
    size = int.from_bytes(tensors[:8], "little")
    entry = json.loads(tensors[8 : 8 + size])[name]
    first, last = entry["data_offsets"]
    data = tensors[8 + size + first : 8 + size + last]
    return head({name: {**entry, "data_offsets": [0, len(data)]}}, data)


def test_encode_program__flags_plain_values_and_missing_gradients__are_carried():
    def body():
        value = x(requires_grad=False)
        value.mul_(2)
        return value, value.sum(), value.shape[0] + 0 * x()[0, 0], x().detach().stride()[0] * x()

    recording = recorded(body)
    read_back = decode(encode_program(recording), encode_tensors(recording))
    assert dict(read_back.facts) == dict(recording.facts)
    assert dict(dict(recording.facts)["output_0"].items) == {
        "requires_grad": False, "is_leaf": True, "layout": "strided", "strides": (3, 1),
    }  # fmt: skip
    assert [key for key in recording.expected if key.startswith("after_")] == ["after_0"]


@pytest.mark.parametrize(
    "fact", [{"ref": 0}, {"tuple": [{"ref": 0}]}, {"constant": "torch.strided"}, {"dtype": "int8"}]
)
def test_decode__a_fact_that_is_no_plain_value__is_refused(fact):
    plain, tensors = files()
    plain["facts"] = {"output_0": fact}
    with pytest.raises(ProgramError, match="is not a plain value"):
        read(plain, tensors)
