"""Dtypes: one row for each dtype that a program can hold, and the sets that other modules need.

A new dtype is a row here; what a framework calls it is in ``host/frameworks/``. If numpy has no such dtype, its
elements travel as their bits, and ``program/literals.py`` converts them. The module uses the standard library only,
because a host reads it in any framework's interpreter.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["boolean", "integer", "float", "complex"]


class Dtype(NamedTuple):
    """What is known of one dtype.

    Attributes:
        name: Without ``torch.``.
        kind: What the elements are.
        size_bytes: Size of one element.
        numpy: numpy's little-endian format; ``None`` if numpy has no such dtype.
        safetensors: Name in a tensor file; ``None`` if the format has none. Complex numbers are written as pairs there.
        part: Dtype of the real part of a complex number.
        rtol: Default relative tolerance, a ratio.
        atol: Default absolute tolerance, in the unit of the elements.
        wide: Dtype in which the float64 oracle computes; ``None`` if it does not convert this one.

    Source:
        ``torch.testing._comparison._DTYPE_PRECISIONS`` (PyTorch 2.13) for ``rtol`` and ``atol``; it has none for
        float8, where they are one unit in the last place of a number.
    """

    name: str
    kind: Kind
    size_bytes: int
    numpy: str | None
    safetensors: str | None
    part: str | None = None
    rtol: float = 0.0
    atol: float = 0.0
    wide: str | None = None


#: The dtypes by name. Generators choose by position, so a new row changes what ``random_dtype()`` draws for a seed.
DTYPES: Final[dict[str, Dtype]] = {
    row.name: row
    for row in (
        Dtype("bool", "boolean", 1, "?", "BOOL"),
        Dtype("uint8", "integer", 1, "u1", "U8"),
        Dtype("int8", "integer", 1, "i1", "I8"),
        Dtype("int16", "integer", 2, "<i2", "I16"),
        Dtype("int32", "integer", 4, "<i4", "I32"),
        Dtype("int64", "integer", 8, "<i8", "I64"),
        Dtype("float16", "float", 2, "<f2", "F16", None, 1e-3, 1e-5, "float64"),
        Dtype("bfloat16", "float", 2, None, "BF16", None, 1.6e-2, 1e-5, "float64"),
        Dtype("float32", "float", 4, "<f4", "F32", None, 1.3e-6, 1e-5, "float64"),
        Dtype("float64", "float", 8, "<f8", "F64", None, 1e-7, 1e-7),
        Dtype("complex64", "complex", 8, "<c8", None, "float32", 1.3e-6, 1e-5, "complex128"),
        Dtype("complex128", "complex", 16, "<c16", None, "float64", 1e-7, 1e-7),
        Dtype("float8_e4m3fn", "float", 1, None, "F8_E4M3", None, 2.0**-3, 2.0**-9, "float64"),
        Dtype("float8_e5m2", "float", 1, None, "F8_E5M2", None, 2.0**-2, 2.0**-16, "float64"),
    )
}
#: Results may have this dtype (the FFT of half precision on CUDA), but programs hold no data of it.
_COMPLEX_HALF: Final = Dtype("complex32", "complex", 4, None, None, "float16", 1e-3, 1e-5)

FLOATING: Final = frozenset(row.name for row in DTYPES.values() if row.kind == "float")
COMPLEX: Final = frozenset(row.name for row in DTYPES.values() if row.kind == "complex")
INTEGERS: Final = frozenset(row.name for row in DTYPES.values() if row.kind == "integer")
UNSIGNED: Final = frozenset(name for name in INTEGERS if name.startswith("uint"))
#: Floating dtypes of 16 bits.
HALF: Final = frozenset(name for name in FLOATING if DTYPES[name].size_bytes == 2)  # noqa: PLR2004 - bytes
#: Floating dtypes of 8 bits. Hardly an operator of torch takes them, so a test gets them only if it names them.
FLOAT8: Final = frozenset(name for name in FLOATING if DTYPES[name].size_bytes == 1)
#: Dtypes whose tensors may require grad.
DIFFERENTIABLE: Final = (FLOATING - FLOAT8) | COMPLEX

#: Bytes of one element.
ITEM_SIZE: Final[dict[str, int]] = {name: row.size_bytes for name, row in DTYPES.items()}
#: Little-endian formats of the dtypes that numpy has.
NUMPY_FORMATS: Final[dict[str, str]] = {name: row.numpy for name, row in DTYPES.items() if row.numpy is not None}
#: numpy's dtype of the bits of elements, for the dtypes that numpy does not have.
BITS: Final[dict[str, str]] = {name: f"uint{8 * row.size_bytes}" for name, row in DTYPES.items() if row.numpy is None}
#: Dtype of the real part of a complex number.
PARTS: Final[dict[str, str]] = {name: row.part for name, row in DTYPES.items() if row.part is not None}
#: Half a unit in the last place, relative to the number, of the dtypes that the float64 oracle converts.
ROUNDING: Final = {
    "float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "complex64": 2.0**-24, "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}  # fmt: skip
#: The dtypes that the float64 oracle converts, and to what.
WIDE: Final[dict[str, str]] = {name: row.wide for name, row in DTYPES.items() if row.wide is not None}
#: Default ``(rtol, atol)``.
TOLERANCES: Final[dict[str, tuple[float, float]]] = {
    row.name: (row.rtol, row.atol) for row in (*DTYPES.values(), _COMPLEX_HALF)
}
#: Dtypes that Python's types stand for, as in ``torch.zeros(1, dtype=float)`` with torch's default of float32.
OF_PYTHON: Final[dict[type, str]] = {float: "float32", int: "int64", bool: "bool", complex: "complex64"}
