"""The data in program.json: exact for every dtype, read strictly, and the same as the tensor file's."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest

from ci_autotest.errors import ProgramError
from ci_autotest.program.ir import Program, Ref, Step, TensorSpec
from ci_autotest.program.recording import Recording
from ci_autotest.program.serialize import decode, decode_program, encode_program, encode_tensors
from ci_autotest.values.dtypes import ITEM_SIZE
from tests import program_samples as programs

NAN, INF = math.nan, math.inf
ELEMENTS = {
    "bool": np.array([True, False]),
    "uint8": np.array([0, 255], "u1"),
    "int8": np.array([-128, 127], "i1"),
    "int16": np.array([-(2**15), 2**15 - 1], "<i2"),
    "int32": np.array([-(2**31), 2**31 - 1], "<i4"),
    "int64": np.array([-(2**63), 2**63 - 1, 2**53 + 1], "<i8"),
    "float16": np.array([0.1, -0.0, 6e-8, 65504, NAN, INF, -INF], "<f2"),
    "bfloat16": np.array([0x3DCD, 0x8000, 0x0001, 0x7F7F, 0x7FC0, 0x7F80, 0xFF80], "<u2"),
    "float32": np.array([0.1, -0.0, 1e-45, 3.4028235e38, 16777217.0, NAN, INF, -INF], "<f4"),
    "float64": np.array([0.1, -0.0, 5e-324, 1.7976931348623157e308, NAN, INF, -INF], "<f8"),
    "complex64": np.array([0.1 - 0.0j, complex(-0.0, NAN), complex(INF, 1e-45)], "<c8"),
    "float8_e4m3fn": np.array([0x00, 0x80, 0x01, 0x38, 0x7E, 0xFE, 0x7F], "u1"),
    "float8_e5m2": np.array([0x00, 0x80, 0x01, 0x3C, 0x7B, 0x7C, 0xFC, 0x7F], "u1"),
    "complex128": np.array([0.1 - 0.0j, complex(-0.0, NAN), complex(INF, 5e-324)], "<c16"),
}


def recording(data: bytes, dtype: str) -> Recording:
    count = len(data) // ITEM_SIZE[dtype]
    spec = TensorSpec(dtype, (count,), (1,), 0, count)
    body = (
        Step("placeholder", "t0", (spec,), (), "x"),
        Step("call_method", "clone", (Ref(0),), (), "y"),
        Step("output", "output", (Ref(1),), (), "output"),
    )
    return Recording(Program((), body, (None,)), {"t0": data})


def edited(values: object, dtype: str = "float32") -> bytes:
    document = json.loads(encode_program(recording(bytes(2 * ITEM_SIZE[dtype]), dtype)))
    return json.dumps({**document, "values": values}).encode()


def test_elements__of_every_dtype() -> None:
    assert ELEMENTS.keys() == ITEM_SIZE.keys()


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_decode_program__small_tensor__is_there_bit_for_bit(dtype: str) -> None:
    held = recording(ELEMENTS[dtype].tobytes(), dtype)

    assert decode_program(encode_program(held)) == held


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_decode_program__all_numbers_of_16_bits__are_there_bit_for_bit(dtype: str) -> None:
    exponent = 0x7C00 if dtype == "float16" else 0x7F80
    numbers = [bits for bits in range(1 << 16) if bits & exponent != exponent]  # all that are finite
    for start in range(0, len(numbers), 64):
        held = recording(np.array(numbers[start : start + 64], "<u2").tobytes(), dtype)
        assert decode_program(encode_program(held)) == held


def test_decode_program__random_bits__are_there_bit_for_bit() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        data = generator.integers(0, 2**32, 64, "u4").astype("<u4")
        data[data >> 23 & 0xFF == 0xFF] = 0  # every NaN is read as the same one
        assert decode_program(encode_program(recording(data.tobytes(), "float32"))).tensors["t0"] == data.tobytes()


@pytest.mark.parametrize("bits", [0x7FC00001, 0xFFC00000, 0x7F800001])
def test_decode_program__nan_of_any_bits__is_nan_and_no_difference(bits: int) -> None:
    held = recording(struct.pack("<I", bits), "float32")

    assert math.isnan(struct.unpack("<f", decode_program(encode_program(held)).tensors["t0"])[0])
    assert decode(encode_program(held), encode_tensors(held)) == held


@pytest.mark.parametrize("count", [0, 1, 64])
def test_decode_program__up_to_64_elements__are_there(count: int) -> None:
    held = recording(programs.floats(*range(count)), "float32")

    assert decode_program(encode_program(held)).tensors == held.tensors


def test_decode_program__65_elements__are_named_by_their_sum() -> None:
    held = recording(programs.floats(*range(65)), "float32")
    read = decode_program(encode_program(held))

    assert (read.tensors, len(read.digests["t0"])) == ({}, 64)
    assert decode(encode_program(held), encode_tensors(held)) == held


def test_decode_program__without_values__is_read_as_before() -> None:
    held = recording(programs.floats(1, 2), "float32")
    document = json.loads(encode_program(held))
    old = json.dumps({key: value for key, value in document.items() if key not in {"values", "sha256"}}).encode()

    assert decode_program(old) == replace(held, tensors={})
    assert decode(old, encode_tensors(held)) == held


@pytest.mark.parametrize("other", [(1, 2.5), (-0.0, 2), (math.nan, 2)])
def test_decode__another_tensor_file__is_refused(other: tuple[float, ...]) -> None:
    first, second = (recording(programs.floats(*data), "float32") for data in ((0, 2), other))
    with pytest.raises(ProgramError, match="hold different data of 't0'"):
        decode(encode_program(first), encode_tensors(second))


def test_decode__another_large_tensor__is_refused() -> None:
    first, second = (recording(programs.floats(*range(start, start + 65)), "float32") for start in (0, 1))
    with pytest.raises(ProgramError, match="hold different data of 't0'"):
        decode(encode_program(first), encode_tensors(second))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        pytest.param("float32", {"t0": [1.0]}, id="too few"),
        pytest.param("float32", {"t0": [1.0] * 3}, id="too many"),
        pytest.param("float32", {"t0": [0.0] * 100_000}, id="a huge list"),
        pytest.param("float32", {"other": [1.0, 2.0]}, id="of nothing"),
        pytest.param("float32", {"t0": [1, 2]}, id="integers for floats"),
        pytest.param("float32", {"t0": [0.1, 2.0]}, id="not of this width"),
        pytest.param("float32", {"t0": [1e300, 2.0]}, id="beyond this width"),
        pytest.param("float16", {"t0": [65520.0, 2.0]}, id="rounds to infinity"),
        pytest.param("bfloat16", {"t0": [1.00390625, 2.0]}, id="no bfloat16"),
        pytest.param("float32", {"t0": ["NaN", 2.0]}, id="another spelling of NaN"),
        pytest.param("float32", {"t0": ["nan(0x1)", 2.0]}, id="NaN with a payload"),
        pytest.param("float32", {"t0": ["1.0", 2.0]}, id="a number as text"),
        pytest.param("float32", {"t0": ["](http://evil.example) <img src=x onerror=1> @org/team", 2.0]}, id="Markdown"),
        pytest.param("float32", {"t0": [True, False]}, id="bools for floats"),
        pytest.param("float32", {"t0": [None, 1.0]}, id="null"),
        pytest.param("float32", {"t0": [[1.0, 2.0], 1.0]}, id="a pair for a float"),
        pytest.param("float32", {"t0": {"0": 1.0}}, id="an object"),
        pytest.param("float32", {"t0": "1.0 2.0"}, id="a text"),
        pytest.param("float32", [], id="no object"),
        pytest.param("int8", {"t0": [128, 0]}, id="beyond int8"),
        pytest.param("uint8", {"t0": [-1, 0]}, id="below uint8"),
        pytest.param("int64", {"t0": [2**63, 0]}, id="beyond int64"),
        pytest.param("int64", {"t0": [10**4000, 0]}, id="a number of 4,001 digits"),
        pytest.param("int64", {"t0": [1.0, 0]}, id="floats for integers"),
        pytest.param("int64", {"t0": [True, 0]}, id="bools for integers"),
        pytest.param("bool", {"t0": [1, 0]}, id="integers for bools"),
        pytest.param("complex64", {"t0": [1.0, 2.0]}, id="floats for complex numbers"),
        pytest.param("complex64", {"t0": [[1.0], [2.0]]}, id="half a complex number"),
        pytest.param("complex64", {"t0": [[1.0, 2.0, 3.0], [0.0, 0.0]]}, id="three parts"),
        pytest.param("complex64", {"t0": [[[1.0], 2.0], [0.0, 0.0]]}, id="nested"),
    ],
)
def test_decode_program__hostile_values__are_refused_in_one_sentence(dtype: str, values: object) -> None:
    with pytest.raises(ProgramError) as caught:
        decode_program(edited(values, dtype))
    said = str(caught.value)
    assert (said.startswith("program.json "), "\n" in said, len(said) < 500) == (True, False, True), said


@pytest.mark.parametrize("value", [b"1e400", b"9" * 5_000, b"NaN", b"Infinity", b"0x1p3", b"[" * 2_000])
def test_decode_program__number_that_json_does_not_have__is_refused(value: bytes) -> None:
    with pytest.raises(ProgramError, match=r"program\.json"):
        decode_program(edited({"t0": [12345.0, 0.0]}).replace(b"12345.0", value))


@pytest.mark.parametrize("told", ["", "f" * 63, "F" * 64, "<b>", 1])
def test_decode_program__hostile_sum__is_refused(told: object) -> None:
    document = json.loads(encode_program(recording(programs.floats(*range(65)), "float32")))
    with pytest.raises(ProgramError, match="damaged or edited"):
        decode_program(json.dumps({**document, "sha256": {"t0": told}}).encode())


def test_decode_program__values_of_a_tensor_that_says_to_be_large__are_refused() -> None:
    document = json.loads(encode_program(recording(programs.floats(1, 2), "float32")))
    document["body"][0]["args"][0]["tensor"] |= {"storage_size": 1 << 28}
    with pytest.raises(ProgramError, match="and 64 at most"):
        decode_program(json.dumps(document).encode())
