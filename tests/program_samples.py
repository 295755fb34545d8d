"""Saved programs without a framework: small, with a gradient, with a large tensor, and hostile."""

from __future__ import annotations

import json
import struct
from typing import Any

from ci_autotest.program.ir import Program, Ref, Step, TensorSpec
from ci_autotest.program.literals import INLINE_ELEMENTS
from ci_autotest.program.note import note_of
from ci_autotest.program.recording import Recording
from ci_autotest.program.serialize import encode_program, encode_tensors

OPERATOR = "torch.nn.functional.layer_norm"


def spec(*shape: int, requires_grad: bool = False) -> TensorSpec:
    """Return a contiguous float32 tensor's spec."""
    strides, size = [], 1
    for length in reversed(shape):
        strides.append(size)
        size *= length
    return TensorSpec("float32", shape, tuple(reversed(strides)), 0, size, requires_grad)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def recording(
    *, columns: int = 2, requires_grad: bool = True, note: dict[str, Any] | None = None, negations: int = 0
) -> Recording:
    """Return ``layer_norm(x + b)``, negated some times, with a gradient put into its output."""
    x, b = spec(1, columns, requires_grad=requires_grad), spec(columns)
    body = (
        Step("placeholder", "input_0", (x,), (), "x"),
        Step("placeholder", "input_1", (b,), (), "b"),
        Step("call_function", "operator.add", (Ref(0), Ref(1)), (), "shifted"),
        Step("call_function", OPERATOR, (Ref(2), (columns,)), (("eps", 1e-05),), "y"),
        *(Step("call_function", "operator.neg", (Ref(3 + i),), (), "z") for i in range(negations)),
        Step("output", "output", (Ref(3 + negations),), (), "output"),
    )
    cotangents = (spec(1, columns),) if requires_grad else (None,)
    # Equal elements of a large tensor are one number in a text.
    is_large = columns > INLINE_ELEMENTS
    numbers = [*range(columns)] if is_large else [1.0] * columns
    tensors = {"input_0": floats(*numbers), "input_1": floats(*(numbers if is_large else [-0.0] * columns))}
    if requires_grad:
        tensors["cotangent_0"] = floats(*(0.5 * number for number in numbers))
    return Recording(Program((), body, cotangents), tensors, note_of(note or {"candidate": "kernels"}))


def files(**how: Any) -> tuple[bytes, bytes]:
    """Return ``program.json`` and ``tensors.safetensors``."""
    made = recording(**how)
    return encode_program(made), encode_tensors(made)


def edited(path: tuple[Any, ...], value: object, **how: Any) -> bytes:
    """Return ``program.json`` with one value replaced, as somebody may have done."""
    document = json.loads(files(**how)[0])
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(document).encode()
