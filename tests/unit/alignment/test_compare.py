"""The comparator says yes and no where it should: the twelve planted pairs, and what else a tensor may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ci_autotest.alignment.compare import compare
from ci_autotest.alignment.elements import close, difference, ulp_distance
from ci_autotest.backends.sameness import same_bits
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Observation
from ci_autotest.values.tolerance import Tolerance, tolerance_for

NAN = float("nan")
INF = float("inf")


def t(*values: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(list(values), dtype=dtype)


def kind(candidate: Any, reference: Any, strictness: str = "tolerance", **how: Any) -> str | None:
    seen = observed(reference)
    dtype = seen.metadata.dtype if seen.metadata else ""
    found = compare(observed(candidate), seen, tolerance_for(dtype, strictness=strictness), **how)
    return found.kind if found else None


def one_off(size: int) -> torch.Tensor:
    tensor = torch.ones(size)
    tensor[size // 2] += 1e-3
    return tensor


def ulps(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[dtype]
    return (torch.ones(3, dtype=dtype).view(bits) + count).view(dtype)


# The pairs of the project's survey of comparators; each with the strictness that claims it.
PLANTED = [
    pytest.param(torch.ones(1, 3), torch.ones(3), ["shape", "shape", "shape"], id="(1,3) and (3,)"),
    pytest.param(torch.ones(1, 3), torch.ones(2, 3), ["shape", "shape", "shape"], id="(1,3) and (2,3)"),
    pytest.param(torch.ones(3), torch.ones(3).double(), ["dtype", "dtype", "dtype"], id="float32 and float64"),
    pytest.param(t(-0.0), t(0.0), [None, "value", "value"], id="-0.0 and 0.0"),
    pytest.param(t(NAN, 1), t(NAN, 1), [None, None, None], id="NaN and NaN"),
    pytest.param(torch.ones(3, 2).t(), torch.ones(2, 3), [None, None, "metadata"], id="other strides"),
    pytest.param(t(1e-7), t(3e-7), [None, "value", "value"], id="1e-7 and 3e-7"),
    pytest.param(t(0.0), t(1e-40), [None, "value", "value"], id="a flushed denormal"),
    pytest.param(
        one_off(10**5), torch.ones(10**5), ["value", "value", "value"], id="one of a hundred thousand off by 1e-3"
    ),
    pytest.param(ulps(50), torch.ones(3), [None, "value", "value"], id="50 ULP at 1.0"),
    pytest.param(ulps(1, torch.bfloat16), torch.ones(3).bfloat16(), [None, None, "value"], id="one bfloat16 ULP"),
    pytest.param(
        torch.ones(3, requires_grad=True), torch.ones(3), ["metadata", "metadata", "metadata"], id="requires_grad"
    ),
]


@pytest.mark.parametrize(("candidate", "reference", "kinds"), PLANTED)
def test_compare__planted_pair__is_right_at_each_strictness(candidate, reference, kinds):
    assert [kind(candidate, reference, level) for level in ("tolerance", "ulp", "bitwise")] == kinds


@pytest.mark.parametrize(("candidate", "reference", "kinds"), PLANTED)
def test_compare__planted_pair_the_other_way_round__is_right_too(candidate, reference, kinds):
    assert [kind(reference, candidate, level) for level in ("tolerance", "ulp", "bitwise")] == kinds


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        pytest.param(t(NAN), t(1.0), "value", id="NaN in the candidate only"),
        pytest.param(t(1.0), t(NAN), "value", id="NaN in the reference only"),
        pytest.param(t(INF), t(INF), None, id="equal infinities"),
        pytest.param(t(INF), t(-INF), "value", id="opposite infinities"),
        pytest.param(t(INF), t(3e38), "value", id="infinity and a large number"),
        pytest.param(t(3e38), t(INF), "value", id="a large number and infinity"),
        pytest.param(t(NAN), t(INF), "value", id="NaN and infinity"),
        pytest.param(torch.empty(0, 3), torch.empty(0, 3), None, id="empty"),
        pytest.param(torch.empty(0, 3), torch.empty(3, 0), "shape", id="empty of another shape"),
        pytest.param(torch.tensor(1.0), torch.tensor(1.0), None, id="0-dim, equal"),
        pytest.param(torch.tensor(2.0), torch.tensor(1.0), "value", id="0-dim, different"),
        pytest.param(torch.tensor(1.0), torch.ones(1), "shape", id="0-dim and one element"),
        pytest.param(t(True, dtype=torch.bool), t(True, dtype=torch.bool), None, id="bool, equal"),
        pytest.param(t(True, dtype=torch.bool), t(False, dtype=torch.bool), "value", id="bool, different"),
        pytest.param(t(2**40, dtype=torch.int64), t(2**40 + 1, dtype=torch.int64), "value", id="int64, off by one"),
        pytest.param(t(2**60, dtype=torch.int64), t(2**60 + 1, dtype=torch.int64), "value", id="int64 beyond float64"),
        pytest.param(t(3, dtype=torch.uint8), t(3, dtype=torch.uint8), None, id="uint8, equal"),
        pytest.param(t(3, dtype=torch.int8), t(3, dtype=torch.uint8), "dtype", id="int8 and uint8"),
        pytest.param(t(1 + 2j, dtype=torch.complex64), t(1 + 2j, dtype=torch.complex64), None, id="complex, equal"),
        pytest.param(t(1 + 2j, dtype=torch.complex64), t(1 - 2j, dtype=torch.complex64), "value", id="complex, conjugate"),
        pytest.param(
            t(complex(NAN, 0), dtype=torch.complex64), t(complex(NAN, 0), dtype=torch.complex64), None, id="complex NaN"
        ),
        pytest.param(
            t(complex(INF, 1), dtype=torch.complex64), t(complex(INF, 1 + 2e-7), dtype=torch.complex64), None,
            id="complex, a finite part beside an infinity, close",
        ),
        pytest.param(
            t(complex(INF, 1), dtype=torch.complex64), t(complex(INF, 1.01), dtype=torch.complex64), "value",
            id="complex, a finite part beside an infinity, off",
        ),
        pytest.param(
            t(complex(INF, 1), dtype=torch.complex64), t(complex(-INF, 1), dtype=torch.complex64), "value",
            id="complex, another infinity",
        ),
        pytest.param(
            t(complex(INF, NAN), dtype=torch.complex64), t(complex(INF, 0), dtype=torch.complex64), "value",
            id="complex, NaN beside an infinity",
        ),
        pytest.param(t(1 + 1j, dtype=torch.complex64).conj(), t(1 - 1j, dtype=torch.complex64), None, id="conj view"),
        pytest.param(t(1 + 1j, dtype=torch.complex64).conj(), t(1 + 1j, dtype=torch.complex64), "value", id="conj view, wrong"),
        pytest.param(t(1 + 1j, dtype=torch.complex64).conj().imag, t(-1.0), None, id="neg view"),
        pytest.param(t(1 + 1j, dtype=torch.complex64).conj().imag, t(1.0), "value", id="neg view, wrong"),
        pytest.param(torch.eye(3).to_sparse(), torch.eye(3).to_sparse(), None, id="sparse, equal"),
        pytest.param((2 * torch.eye(3)).to_sparse(), torch.eye(3).to_sparse(), "value", id="sparse, different"),
        pytest.param(t(1, 2).half(), t(1, 2).half(), None, id="half, equal"),
        pytest.param(t(1, 2.01).half(), t(1, 2).half(), "value", id="half, different"),
        pytest.param(t(1, 2.2).bfloat16(), t(1, 2).bfloat16(), "value", id="bfloat16, different"),
        pytest.param(t(1.0 + 1e-12).double(), t(1.0).double(), None, id="float64, near"),
        pytest.param(t(1.0 + 1e-5).double(), t(1.0).double(), "value", id="float64, far"),
        pytest.param(torch.arange(6.0).reshape(2, 3)[:, ::2], torch.tensor([[0.0, 2], [3, 5]]), None, id="sliced, equal"),
        pytest.param(torch.arange(6.0).reshape(2, 3)[:, ::2], torch.tensor([[0.0, 2], [3, 6]]), "value", id="sliced, different"),
        pytest.param(torch.ones(1).expand(4), torch.ones(4), None, id="expanded, equal"),
        pytest.param(torch.ones(1).expand(4), torch.tensor([1.0, 1, 1, 2]), "value", id="expanded, different"),
    ],
)  # fmt: skip
def test_compare__at_default_tolerance__says_which_kind(candidate, reference, expected):
    assert kind(candidate, reference) == expected


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        pytest.param(1, 1, None, id="int, equal"),
        pytest.param(1, 2, "value", id="int, different"),
        pytest.param(NAN, NAN, None, id="NaN"),
        pytest.param(NAN, 1.0, "value", id="NaN and a number"),
        pytest.param(None, None, None, id="None"),
        pytest.param(None, 0, "value", id="None and 0"),
        pytest.param(True, False, "value", id="bool, different"),
        pytest.param(torch.Size([2]), torch.Size([2]), None, id="sizes, equal"),
        pytest.param(torch.Size([2]), torch.Size([3]), "value", id="sizes, different"),
        pytest.param((2, 3), torch.Size([2, 3]), None, id="sizes of another interpreter"),
        pytest.param((2, 4), torch.Size([2, 3]), "value", id="sizes of another interpreter, different"),
        pytest.param(torch.float32, torch.float64, "value", id="dtypes, different"),
        pytest.param((np.int64(2), 3), torch.Size([2, 3]), None, id="sizes of numpy's integers"),
        pytest.param("a dtype", torch.float32, None, id="another framework's word for a dtype"),
        pytest.param(None, torch.float32, "value", id="nothing instead of a dtype"),
        pytest.param(None, torch.ones(2), "shape", id="None against a tensor"),
        pytest.param(torch.ones(2), None, "shape", id="a tensor against None"),
        pytest.param(1.0, torch.ones(()), "shape", id="a number against a tensor"),
    ],
)
def test_compare__values_that_are_no_tensors__says_which_kind(candidate, reference, expected):
    assert kind(candidate, reference) == expected


def test_compare__one_element_outside__counts_and_places_it():
    candidate, reference = torch.tensor([[1.0, 2.0], [3.5, 4.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = compare(observed(candidate), observed(reference), Tolerance(0.0, 0.1))

    assert found is not None
    assert found.difference is not None
    told = found.difference
    assert (told.mismatched, told.total, told.first_index, told.greatest_index) == (1, 4, (1, 0), (1, 0))
    assert (told.greatest_absolute, told.greatest_relative) == (0.5, 0.5 / 3)
    assert told.first_pair == ((3.5).hex(), (3.0).hex())
    assert (told.rtol, told.atol) == (0.0, 0.1)


def test_compare__infinite_difference__has_no_number():
    found = compare(observed(t(INF)), observed(t(0.0)), tolerance_for("float32"))

    assert found is not None
    assert found.difference is not None
    assert (found.difference.greatest_absolute, found.difference.greatest_relative) == (None, None)


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        pytest.param(100.0, 110.0, None, id="the reference is the larger: 10 <= 0.1 * 110"),
        pytest.param(110.0, 99.9, "value", id="the reference is the smaller: 10.1 > 0.1 * 99.9"),
    ],
)
def test_compare__relative_tolerance__is_of_the_reference(candidate, reference, expected):
    found = compare(observed(t(candidate)), observed(t(reference)), Tolerance(0.1, 0.0))
    assert (found.kind if found else None) == expected


def test_compare__dtype_unchecked__compares_values():
    assert kind(torch.ones(2), torch.ones(2).double(), check_dtype=False) is None
    assert kind(2 * torch.ones(2), torch.ones(2).double(), check_dtype=False) == "value"


def test_compare__flags_unchecked__ignores_requires_grad():
    assert kind(torch.ones(2, requires_grad=True), torch.ones(2), check_grad_flags=False) is None


@pytest.mark.parametrize(
    ("strides", "expected"),
    [
        pytest.param((99, 1), None, id="of a dimension of size 1"),
        pytest.param((3, 2), "metadata", id="of a dimension of size 3"),
    ],
)
def test_compare__bitwise__strides_that_mean_something_count(strides, expected):
    candidate = torch.arange(200.0).as_strided((1, 3), strides)
    reference = candidate.clone(memory_format=torch.contiguous_format)
    tolerance = tolerance_for("float32", strictness="bitwise")
    # Observing copies: the strides are given as seen.
    seen = observed(candidate)
    seen = Observation(seen.metadata._replace(strides=strides), seen.data)
    found = compare(seen, observed(reference), tolerance)
    assert (found.kind if found else None) == expected


@pytest.mark.parametrize(
    ("left", "right", "limit"),
    [
        pytest.param(t(1.0), torch.nextafter(t(1.0), t(2.0)), 1, id="next"),
        pytest.param(t(-1e-45), t(1e-45), 2, id="across zero"),
        pytest.param(t(0.0), t(-0.0), 0, id="zeros"),
        pytest.param(t(1.0).double(), torch.nextafter(t(1.0).double(), t(0.0).double()), 1, id="float64"),
    ],
)
def test_ulp_distance__two_numbers__is_counted_along_the_line(left, right, limit):
    assert float(ulp_distance(left, right)) == limit


@pytest.mark.parametrize("count", [4, 5], ids=["at the limit", "beyond it"])
def test_compare__ulp__allows_four(count):
    assert (kind(ulps(count), torch.ones(3), "ulp") is None) == (count <= 4)


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        pytest.param(torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), None, id="sparse, equal"),
        pytest.param(2 * torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), "value", id="sparse, different"),
        pytest.param(torch.tensor(complex(-0.0, 1.0)), torch.tensor(complex(0.0, 1.0)), "value", id="complex -0.0"),
        pytest.param(
            torch.nextafter(t(1.0).double(), t(0.0).double()), t(1.0).double(), "value", id="one float64 ULP below 1"
        ),
        pytest.param(t(1).long(), t(1).long(), None, id="integers"),
        pytest.param(t(2**60, dtype=torch.int64), t(2**60 + 1, dtype=torch.int64), "value", id="int64 beyond float64"),
    ],
)
def test_compare__bitwise__is_exact_for_every_dtype_and_layout(candidate, reference, expected):
    assert kind(candidate, reference, "bitwise") == expected


@pytest.mark.parametrize("strictness", ["tolerance", "ulp", "bitwise"])
def test_compare__sparse_against_dense__is_misaligned(strictness):
    assert kind(torch.eye(2).to_sparse(), torch.eye(2), strictness) == "metadata"


def test_same_bits__equal_bits_of_nan__are_the_same():
    assert same_bits(t(NAN), t(NAN))
    assert not same_bits(t(0.0), t(-0.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=["float", "complex"])
@pytest.mark.parametrize("strictness", ["tolerance", "ulp", "bitwise"])
def test_close__and_difference__agree(dtype, strictness):
    tolerance = tolerance_for(str(dtype).removeprefix("torch."), strictness=strictness)
    values = t(0.0, -0.0, 1.0, 1.0000001, NAN, INF, -INF, 1e-40, dtype=dtype)
    for left in values:
        for right in values:
            assert close(left, right, tolerance) == (difference(left, right, tolerance) is None), (left, right)


def test_compare__sides_that_differ_in_what_their_text_does_not_say__are_told_apart():
    leaf = torch.ones(2, requires_grad=True)
    found = compare(observed(leaf), observed(leaf * 1), tolerance_for("float32"))
    assert found is not None
    assert (found.candidate, found.reference) == (
        "float32[2] on cpu that requires grad, is_leaf True", "float32[2] on cpu that requires grad, is_leaf False",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("candidate", "reference", "lacks"),
    [
        (torch.ones(2), torch.ones(2, requires_grad=True) * 1, True),
        (torch.ones(2) * 3, torch.ones(2, requires_grad=True) * 1, False),
        (torch.ones(2, requires_grad=True), torch.ones(2), False),
        (torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 1, False),
        (torch.ones(3), torch.ones(2, requires_grad=True) * 1, False),
        (torch.ones(2).to_sparse(), torch.ones(2, requires_grad=True) * 1, False),
    ],
)
def test_compare__right_values_without_a_gradient__are_told_apart(
    candidate: torch.Tensor, reference: torch.Tensor, lacks: bool
):
    found = compare(observed(candidate), observed(reference), tolerance_for("float32"))
    assert found is not None
    assert found.lacks_gradient is lacks
