"""Elements of a program in its tests: those of the first call, in the layout that they had."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from ci_autotest.call_capture import journal
from ci_autotest.call_capture.arguments import stored_bytes
from ci_autotest.call_capture.journal import TensorSpool
from ci_autotest.call_capture.layouts import elements_shape, layout_of
from ci_autotest.call_capture.session import capture
from ci_autotest.call_capture.stored_data import array_at
from ci_autotest.errors import OutputError
from ci_autotest.program.ir import TensorSpec
from ci_autotest.program.npz import numpy_dtype, read_npz
from tests.engine import record
from tests.unit.call_capture.views import VIEWS

DTYPES = (torch.bool, torch.uint8, torch.float16, torch.complex64, torch.bfloat16, torch.float8_e5m2)


def captured(folder: Path, program) -> tuple[dict[str, object], str, object]:
    """Return the tests of a program by name, their text, and their data."""
    with capture(folder, "program", data=True):
        program()
    file = folder / "autotest_program.py"
    data = file.with_suffix(".npz")
    return runpy.run_path(str(file)), file.read_text(), np.load(data, allow_pickle=False) if data.exists() else {}


def inputs(tests, name: str) -> list[torch.Tensor]:
    """Return the tensors of a test's first case: those that it has from outside, and those of its calls."""
    body = tests[name]
    return [one for one in record(body).trace.values if isinstance(one, torch.Tensor)]


def test_array_at__every_layout__its_view_is_the_tensor(tmp_path):
    spool = TensorSpool(tmp_path / "data")
    wrong = []
    for name, (make, _) in VIEWS.items():
        zeros = make()
        wanted = torch.arange(1.0, 1 + zeros.untyped_storage().nbytes() // 4)
        wanted = wanted.as_strided(zeros.shape, zeros.stride())
        spec = TensorSpec("float32", tuple(wanted.shape), wanted.stride())
        place = spool.add(stored_bytes(wanted, elements_shape(spec)))
        whole = torch.from_numpy(array_at(spool.path, place, spec).copy())
        _, layout = layout_of(spec)
        # The expression is one of ours.
        view = eval(f"tensor{''.join(layout.suffixes())}", {"tensor": whole, "torch": torch})  # noqa: S307
        wrong += [] if torch.equal(view, wanted) else [name]
    assert wrong == []


def test_array_at__elements_that_are_lost__is_an_error_and_no_zeros(tmp_path):
    spool = tmp_path / "data"
    spool.write_bytes(bytes(8))
    with pytest.raises(OutputError):
        array_at(spool, 4, TensorSpec("float32", (2,), (1,)))


def test_array_at__windows_that_no_expression_makes__are_stored_whole(tmp_path):
    windows = torch.arange(9.0).unfold(0, 3, 1)
    spec = TensorSpec("float32", tuple(windows.shape), windows.stride())
    spool = TensorSpool(tmp_path / "data")
    place = spool.add(stored_bytes(windows, elements_shape(spec)))
    assert array_at(spool.path, place, spec).tolist() == windows.tolist()


def test_stored_bytes__every_dtype__are_the_bytes_of_a_file():
    for dtype in DTYPES:
        ones = torch.ones(2, 3).to(dtype)
        array = np.frombuffer(stored_bytes(ones, ones.shape), numpy_dtype(str(dtype).removeprefix("torch.")))
        assert (array.size, len(set(array.tolist()))) == (6, 1), dtype
    imaginary = torch.tensor([1j]).conj()
    assert np.frombuffer(stored_bytes(imaginary, (1,)), "c8").tolist() == [-1j]


def test_capture__data__test_has_the_elements_of_the_first_call(tmp_path):
    first = torch.tensor([[0.5, float("nan")], [-0.0, 3.0]], requires_grad=True)
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)

    def program():
        first.T.mul(2.0)
        torch.ones(2, 2, requires_grad=True).T.mul(2.0)
        half.exp_()
        torch.add(first.detach(), 1, out=torch.full((2, 2), 7.0))

    tests, text, data = captured(tmp_path, program)
    leaf, view, _ = inputs(tests, "mul")
    assert (leaf.requires_grad, view.stride()) == (True, (1, 2))
    assert torch.equal(view.nan_to_num(9), first.T.nan_to_num(9))
    dtype, before = read_npz(tmp_path / "autotest_program.npz", "exp_in_place.0.x")
    assert (dtype, before.tolist()) == ("bfloat16", [1.5, -2.0])
    assert sorted(data) == ["T.0.x", "add.0.x", "exp_in_place.0.x", "mul.0.x"]
    assert "# NaN or infinities" not in text


def test_capture__data__rows_and_lists_have_keys_of_their_own(tmp_path):
    def program():
        for size in (2, 3):
            for factor in (0.5, 0.25):
                torch.full((size,), 1.0 * size).mul(factor)
        torch.cat([torch.full((2,), 1.0 * number) for number in range(5)])

    _, text, data = captured(tmp_path, program)
    kept = {key: data[key].tolist() for key in sorted(data)}
    assert kept == {
        **{f"cat.0.x.{number}": [number, number] for number in range(5)},
        "mul.0.x": [2.0, 2.0],
        "mul.1.x": [3.0, 3.0, 3.0],
    }
    assert (
        """\
    row, number = oneof((0, 0.5), (0, 0.25), (1, 0.5), (1, 0.25)).value()
    x = stored_tensor("autotest_program.npz", f"mul.{row}.x", requires_grad=False)
    return x.mul(number)
"""
        in text
    )
    assert (
        """\
    for item in range(5):
        x.append(
            stored_tensor(
                "autotest_program.npz",
                f"cat.0.x.{item}",
                requires_grad=False,
            ),
        )
"""
        in text
    ), text


def test_capture__data__what_is_too_large_is_drawn_and_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(journal, "TENSOR_BYTES", 40)
    _, text, data = captured(tmp_path, lambda: torch.linspace(0, 1, 24).mul(torch.tensor(2.0)))
    assert [*data] == ["mul.0.y"]
    assert (
        """\
# x is drawn, because the elements were too many to be stored.
@autotest(n=4)
def mul():
    x = torch.sort(
"""
        in text
    )
    assert "not stored: 1 input is drawn, because of one tensor at most" in capsys.readouterr().err


def test_capture__data__calls_that_are_refused_take_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "ALL_BYTES", 64)

    def program():
        for _ in range(9):
            with pytest.raises(RuntimeError):
                torch.ones(2, 3) @ torch.ones(2, 3)
        torch.ones(8).exp()

    _, _, data = captured(tmp_path, program)
    assert [*data] == ["exp.0.x"]


def test_capture__data__written_memory_is_not_stored(tmp_path):
    _, text, data = captured(tmp_path, lambda: torch.empty(3).uniform_())
    assert ([*data], "stored_tensor" in text) == ([], False)
