"""Tensors whose elements depend on one another: the property holds in every profile, and data go by case and site."""

from __future__ import annotations

import numpy as np
import pytest
import torch as real

from ci_autotest import (
    choice_tensor,
    index_tensor,
    invertible_tensor,
    permutation_tensor,
    positive_definite_tensor,
    random,
    random_dtype,
    random_tensor,
    symmetric_tensor,
)
from ci_autotest.errors import AuthorError
from ci_autotest.record.draw.profiles import ORDINARY, PROFILES
from tests.engine import record

EVERY = (ORDINARY, *PROFILES)


def values_of(body, profile=ORDINARY, cases=12, **edits):
    """Return the tensors of the placeholders of a few cases."""
    found = []
    for case in range(cases):
        attempt = record(body, case, profile=profile, edits=edits)
        count = len(attempt.sources)
        found.append([value.detach() for value in attempt.trace.values[:count]])
    return found


@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize("dtype", [real.float32, real.float64, real.complex64, real.bfloat16], ids=str)
def test_symmetric_tensor__every_profile__is_hermitian(profile, dtype):
    for (x,) in values_of(lambda: symmetric_tensor(ndim=3, dtype=dtype) * 1, profile, 4):
        assert x.dtype is dtype
        assert real.equal(x, x.mH)


@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize("dtype", [real.float64, real.complex128], ids=str)
def test_positive_definite_tensor__every_profile__has_eigenvalues_above_a_half(profile, dtype):
    for (x,) in values_of(lambda: positive_definite_tensor(ndim=3, dtype=dtype) * 1, profile, 4):
        assert x.numel() == 0 or real.linalg.eigvalsh(x).min() > 0.5 - 1e-9


@pytest.mark.parametrize("profile", EVERY)
def test_invertible_tensor__every_profile__is_far_from_singular_and_not_symmetric(profile):
    matrices = [x for (x,) in values_of(lambda: invertible_tensor(dtype=real.float64) * 1, profile, 6)]
    assert all(x.numel() == 0 or real.linalg.cond(x) < 20 for x in matrices)
    assert profile in {"zero_size", "size_one"} or any(not real.equal(x, x.T) for x in matrices)


@pytest.mark.parametrize(
    ("profile", "sizes"),
    [
        ("zero_size", {0}),
        ("size_one", {1}),
        ("boundary", {*range(1, 8), 31, 32, 33, 127, 128, 129, 257, 258, 260, 264, 272, 288, 320}),
    ],
)
def test_symmetric_tensor__profile_of_shape__changes_a_free_size(profile, sizes):
    assert {x.shape[-1] for (x,) in values_of(lambda: symmetric_tensor() * 1, profile)} <= sizes


def test_symmetric_tensor__given_size__is_never_changed():
    for profile in EVERY:
        assert {x.shape[-1] for (x,) in values_of(lambda: symmetric_tensor(3) * 1, profile)} == {3}


def test_symmetric_tensor__non_contiguous__says_that_the_profile_applied():
    attempt = record(lambda: symmetric_tensor(3) * 1, profile="non_contiguous")
    assert (attempt.profile, attempt.trace.values[0].is_contiguous()) == ("non_contiguous", False)


@pytest.mark.parametrize("profile", EVERY)
def test_index_tensor__every_profile__lies_below_the_size(profile):
    def body():
        x = random_tensor(ndim=2)
        index = index_tensor(x, dim=1, dims=(random(1, 40).to(int),))
        return x[:, index]

    for case in range(12):
        attempt = record(body, case, profile=profile)
        assert attempt.refused is None
        x, index = attempt.trace.values[:2]
        assert index.numel() == 0 or (index.min() >= 0 and index.max() < x.shape[1])
        assert x.shape[1] > 0 or index.numel() == 0


def test_index_tensor__over_many__reaches_every_index_on_both_sides():
    body = lambda: index_tensor(3, dims=(50,), negative=True) * 1  # noqa: E731 - a body
    assert {int(item) for (x,) in values_of(body) for item in x} == {-3, -2, -1, 0, 1, 2}


def test_permutation_tensor__over_many__holds_each_once_in_many_orders():
    found = [tuple(x.tolist()) for (x,) in values_of(lambda: permutation_tensor(5) * 1)]
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in found)
    assert len(set(found)) > 8


@pytest.mark.parametrize(
    ("make", "allowed", "dtype"),
    [
        pytest.param(lambda: choice_tensor(4, (3, 5)), {0, 1, 2, 3}, real.int64, id="count"),
        pytest.param(lambda: choice_tensor([-1.0, 1.0], 20), {-1.0, 1.0}, real.float32, id="floats"),
        pytest.param(lambda: choice_tensor([True, False], 9), {True, False}, real.bool, id="bools"),
        pytest.param(lambda: choice_tensor([2, 7], 20, p=[0.0, 1.0]), {7}, real.int64, id="probabilities"),
        pytest.param(
            lambda: choice_tensor([2, 7], 20, dtype=real.float64, requires_grad=True),
            {2.0, 7.0},
            real.float64,
            id="dtype",
        ),
    ],
)
def test_choice_tensor__over_many__takes_each_member(make, allowed, dtype):
    found = [x for (x,) in values_of(lambda: make().clone())]
    assert {item for x in found for item in x.reshape(-1).tolist()} == allowed
    assert {x.dtype for x in found} == {dtype}


@pytest.mark.parametrize("p", [None, [0.1, 0.2, 0.3, 0.4]], ids=["equal", "weighted"])
def test_choice_tensor__without_repeats__takes_each_once(p):
    for (x,) in values_of(lambda: choice_tensor(4, 4, replace=False, p=p) * 1):
        assert sorted(x.tolist()) == [0, 1, 2, 3]


def test_choice_tensor__weighted__has_the_shares_asked_for():
    drawn = real.cat([x for (x,) in values_of(lambda: choice_tensor(2, 500, p=[0.9, 0.1]) * 1)])
    assert abs(drawn.double().mean().item() - 0.1) < 0.02


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda: choice_tensor(0, 3), "has nothing to choose from", id="none"),
        pytest.param(lambda: choice_tensor(2, 3, replace=False), "cannot choose 3 of 2 members", id="too many"),
        pytest.param(lambda: choice_tensor(2, 3, p=[0.5, 0.6]), "has 2 numbers with the sum 1.1", id="sum"),
        pytest.param(lambda: choice_tensor(2, 3, p=[1.0]), "has 1 numbers with the sum 1.", id="length"),
        pytest.param(lambda: symmetric_tensor(dtype=int), "torch.int64) is not a floating dtype", id="integers"),
        pytest.param(lambda: symmetric_tensor(ndim=1), "ndim=1) is not a matrix", id="no matrix"),
    ],
)
def test_special__misused__says_what_to_write(make, said):
    with pytest.raises(AuthorError) as caught:
        record(lambda: make() * 1)
    assert said in str(caught.value)


@pytest.mark.parametrize("make", [lambda: permutation_tensor(3), lambda: index_tensor(3), symmetric_tensor])
def test_special__outside_a_test__is_refused(make):
    with pytest.raises(AuthorError, match="was called outside a test"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: permutation_tensor(50),
        lambda: choice_tensor(50, 40),
        lambda: symmetric_tensor(9),
        lambda: index_tensor(99, dims=(30,)),
    ],
    ids=["permutation", "choice", "symmetric", "index"],
)
def test_special__data__go_by_case_and_site(make):
    def body():
        first, _, third = make(), random_tensor(ndim=random(1, 4).to(int)), make()
        return first * 1, third * 1

    first, again, other = record(body, 2), record(body, 2), record(body, 4)
    at = [value for value in first.trace.values if isinstance(value, real.Tensor)]
    assert not real.equal(at[0], at[2])
    assert real.equal(at[0], again.trace.values[0])
    assert not real.equal(at[0], other.trace.values[0])
    dim = next(draw for draw in first.draws if draw[1] == "int")
    edited = record(body, 2, edits={dim[0]: dim[4] % 3 + 1})
    assert edited.trace.values[1].ndim != at[1].ndim
    assert real.equal(edited.trace.values[2], at[2])


def test_random_dtype__groups__give_every_dtype():
    def body():
        return random_tensor(dims=(2,), dtype=random_dtype(["all"])).clone()

    found = {str(x.dtype).removeprefix("torch.") for (x,) in values_of(body, cases=200)}
    assert found == {
        "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
        "complex128",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("names", "said"),
    [(["floats"], "does not know the dtype 'floats'. Use bool, uint, int"), ([], "got no dtype.")],
    ids=["unknown", "none"],
)
def test_random_dtype__misused__says_what_there_is(names, said):
    with pytest.raises(AuthorError) as caught:
        random_dtype(names)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (real.uint8, 0, 10), (real.int8, -10, 10), (real.int16, -10, 10), (real.int32, -10, 10), (real.int64, -10, 10),
        (real.float16, -1, 1), (real.bfloat16, -1, 1), (real.float32, -1, 1), (real.float64, -1, 1),
    ],
    ids=str,
)  # fmt: skip
def test_random_tensor__range_of_a_dtype__is_reached_and_kept(dtype, low, high):
    drawn = real.cat([x.double() for (x,) in values_of(lambda: random_tensor(dims=(200,), dtype=dtype).clone())])
    span = high - low
    assert low <= drawn.min() < low + span / 20
    assert high - span / 20 < drawn.max() <= high


def test_random_tensor__bounds_that_are_generators__are_drawn():
    size = random(3, 30).to(int)

    def body():
        return random_tensor(dims=(60,), low=0, high=size, dtype=int) * random_tensor(dims=(size, 1))

    for drawn, other in values_of(body):
        assert drawn.max() < len(other)
        assert np.isin(drawn.numpy(), range(len(other))).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(
            lambda: random_tensor(low=-3, dtype=real.uint8),
            "exceeds the range of uint8, 0 to 255. Give a narrower range, or a wider dtype.",
            id="negative unsigned",
        ),
        pytest.param(lambda: random_tensor(high=300, dtype=real.int8), "range of int8, -128 to 127", id="too high"),
        pytest.param(lambda: random_tensor(dims=(2,), ndim=1), "got dims and also ndim or dim0 to dim4", id="both"),
        pytest.param(lambda: random_tensor(dims=(2,), dim1=3), "got dims and also ndim or dim0 to dim4", id="dim1"),
    ],
)
def test_random_tensor__contradiction__says_what_to_write(make, said):
    with pytest.raises(AuthorError) as caught:
        record(lambda: make() * 1)
    assert said in str(caught.value)


@pytest.mark.parametrize("profile", EVERY)
def test_random_tensor__more_than_five_dimensions__keeps_what_was_given(profile):
    shapes = [x.shape for (x,) in values_of(lambda: random_tensor(dims=(2, None, 1, 3, 1, 1, None)) * 1, profile)]
    assert {(len(shape), shape[0], shape[3]) for shape in shapes} == {(7, 2, 3)}
    assert len({shape[1] for shape in shapes}) > 1 or profile in {"zero_size", "size_one"}
