from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch as real

from ci_autotest import oneof, random_tensor, stored_tensor
from ci_autotest.errors import AuthorError
from ci_autotest.program.npz import numpy_dtype, write_npz
from ci_autotest.record.draw.profiles import ORDINARY, PROFILES, STORED
from tests.engine import record

X = np.linspace(-2, 2, 6, dtype="f4").reshape(2, 3)


@pytest.fixture
def file(tmp_path) -> str:
    bits = np.array([0x3F80, 0x8000, 0x7F80], "<u2").view(numpy_dtype("bfloat16"))
    values = {"x": X, "half": bits, "scalar": np.float64(0.5), "complex": np.array([1j], "c8"), "labels": np.arange(3)}
    write_npz(tmp_path / "a.npz", [(key, np.asarray(value)) for key, value in values.items()])
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object), **{f"k{number}": X for number in range(9)})
    return str(tmp_path / "a.npz")


def leaf(body, **how) -> real.Tensor:
    return record(body, **how).trace.values[0]


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("x", real.from_numpy(X)),
        ("half", real.tensor([1.0, -0.0, float("inf")], dtype=real.bfloat16)),
        ("scalar", real.tensor(0.5, dtype=real.float64)),
        ("complex", real.tensor([1j])),
        ("labels", real.arange(3)),
    ],
)
def test_stored_tensor__array__is_an_input_with_these_elements(file, key, wanted):
    found = leaf(lambda: stored_tensor(file, key) * 1)
    assert (found.dtype, found.shape, found.requires_grad) == (wanted.dtype, wanted.shape, not key.startswith("lab"))
    assert real.equal(found.detach(), wanted)
    assert real.equal(real.signbit(found.detach().real), real.signbit(wanted.real))


def test_stored_tensor__generators__are_drawn_and_take_no_draw_from_others(file):
    def body():
        key = oneof("x", "x")
        return stored_tensor(file, key, requires_grad=False) + random_tensor(2, 2, 3)

    def drawn():
        oneof("x", "x").value()
        return random_tensor(2, 2, 3) + random_tensor(2, 2, 3)

    stored, other = record(body).trace.values, record(drawn).trace.values
    assert (stored[0].requires_grad, real.equal(stored[0], real.from_numpy(X))) == (False, True)
    assert other[0].shape == stored[0].shape


@pytest.mark.parametrize("profile", PROFILES)
def test_stored_tensor__profile__changes_the_layout_alone_and_tells_why_it_does_not(file, profile):
    attempt = record(lambda: stored_tensor(file, "x") * 1, case=1, profile=profile)
    found = attempt.trace.values[0].detach()
    assert (real.equal(found, real.from_numpy(X)), found.is_contiguous()) == (True, profile != "non_contiguous")
    told = {"zeros_and_ties": STORED, "large": STORED, "special": STORED, "non_contiguous": None}
    why = told.get(profile, "fixed_sizes")
    assert (attempt.profile, attempt.unfit) == (ORDINARY if why else profile, (profile, why) if why else None)


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        (
            "b.npz",
            "x",
            "there is no such file beside test_stored_tensors.py. Copy it there, or capture the program again",
        ),
        ("a.npz", "y", "the file has no array of that name. It has 'x', 'half', 'scalar', 'complex', 'labels'."),
        ("objects.npz", "y", "'k6', …."),
        ("objects.npz", "x", "'x' cannot be read (Object arrays cannot be loaded when allow_pickle=False)."),
        ("", "x", "cannot be read: Is a directory."),
    ],
)
def test_stored_tensor__what_is_missing__is_told_in_one_sentence(file, name, key, message):
    path = str(Path(file).parent / name)
    with pytest.raises(AuthorError) as caught:
        record(lambda: stored_tensor(path, key) * 1)
    assert str(caught.value).startswith(f"stored_tensor({path!r}, {key!r}): ")
    assert message in str(caught.value)


def test_stored_tensor__outside_a_test__is_refused():
    with pytest.raises(AuthorError, match="outside a test"):
        stored_tensor("a.npz", "x")
