from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from ci_autotest.call_capture.mode import CallMode
from ci_autotest.call_capture.observation import Capture, ObservedCall, Omission
from ci_autotest.call_capture.session import capture
from ci_autotest.call_capture.tests_folder import file_stem, file_texts
from ci_autotest.errors import ProgramError, UsageError
from tests.engine import record


def text_of(program) -> str:
    mode = CallMode()
    with mode:
        program()
    files, _ = file_texts(mode.capture(), "train.py")
    return "\n".join(file.text for file in files.values())


def test_file_texts__sizes_that_differ__are_rows_that_are_each_a_case():
    def program():
        for rows in (2, 3):
            torch.nn.functional.softmax(torch.full((rows, 5), 0.5).mul(torch.linspace(-1, 1, 5)), dim=-1)

    assert """\
@autotest(n=6, examples=[{"0.pick": k} for k in range(2)])
def softmax():
    x_dims = oneof((2, 5), (3, 5)).value()
    x = random_tensor(dims=x_dims, low=-0.5, high=0.5, requires_grad=False)
    return torch.nn.functional.softmax(x, dim=-1)
""" in text_of(program)


def test_file_texts__indices__are_within_what_was_seen_for_each_size():
    def program():
        for size in (4, 9):
            torch.nn.functional.embedding(torch.tensor([[0, size - 1]]), torch.ones(size, 2))

    assert """\
    y_dims, x_high = oneof(((4, 2), 4), ((9, 2), 9)).value()
    x = random_tensor(dims=(1, 2), low=0, high=x_high, dtype=torch.int64)
""" in text_of(program)


LINES = {
    "inplace on a value that requires grad": (
        lambda: torch.nn.functional.relu(torch.arange(6.0).requires_grad_().mul(2), inplace=True),
        ".clone()",
    ),
    "setitem": (lambda: torch.arange(6.0).reshape(2, 3).__setitem__((0, slice(1, None)), 7.0), "x[0, 1:] = 7.0"),
    "out": (lambda: torch.exp(torch.arange(3.0), out=torch.arange(3.0)), "return torch.exp(x, out=out)"),
    "alike tensors": (lambda: torch.cat([torch.ones(2, 2)] * 5), "for _ in range(5):"),
    "device": (lambda: torch.arange(3, device="cpu"), "torch.arange(3, device=cpu_device())"),
    "mask": (
        lambda: torch.arange(8).lt(1).logical_not(),
        "choice_tensor([False, True], size=(8,), p=[0.88, 0.12])",
    ),
    "autocast": (lambda: _autocast(), 'with torch.autocast("cpu", dtype=torch.bfloat16):'),
    "text": (lambda: torch.einsum("ij->ji", torch.ones(2, 3)), 'torch.einsum("ij->ji", x)'),
    "builtin's name": (lambda: torch.ones(2).abs(), "def abs_():"),
    "view": (lambda: torch.arange(6.0).view(2, 3).T.exp(), ".transpose(0, 1)\n    return x.exp()"),
    "property": (lambda: torch.ones(2, 3).T, "return x.T"),
    "sign that is a keyword": (lambda: torch.ones(2, dtype=torch.int64) & 1, "def and_():"),
}


def _autocast():
    with torch.autocast("cpu", torch.bfloat16):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))


@pytest.mark.parametrize("name", LINES)
def test_file_texts__habit__is_written_as_a_person_would(name):
    program, line = LINES[name]
    text = text_of(program)
    assert line in text, text
    compile(text.replace("from ci_autotest", "# "), "<test>", "exec")


def test_file_texts__tensors_as_bounds_of_a_slice__are_inputs():
    held: dict[str, Any] = {}
    text = text_of(lambda: torch.arange(10.0)[torch.tensor(2) : torch.tensor(5)].exp())
    exec(compile(text, "<test>", "exec"), held)  # noqa: S102 - a captured file is run
    assert "    return x[y:z]\n" in text


def test_file_texts__memory_format__is_a_test_that_runs():
    held: dict[str, Any] = {}
    text = text_of(lambda: torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d).exp())
    exec(compile(text, "<test>", "exec"), held)  # noqa: S102 - a captured file is run
    result = record(held["exp"]).trace.values[-2]
    assert result.is_contiguous(memory_format=torch.channels_last_3d)


def test_file_texts__too_many_operators__the_least_called_are_told():
    mode = CallMode()
    x = torch.ones(2)
    with mode:
        for _ in range(3):
            x.exp()
        x.sin()
    files, omissions = file_texts(mode.capture(), "a.py", 1)
    (file,) = files.values()
    assert ([test.name for test in file.tests], omissions, "def exp" in file.text) == (
        ["exp"],
        [Omission("sin", "called less often than the calls of the tests", 1)],
        True,
    )


def test_file_texts__ten_thousand_calls__are_at_most_150_tests():
    def program():
        for round_ in range(100):
            for name in ("exp", "sin", "cos", "tanh", "sigmoid", "relu", "abs", "neg", "sum", "mean"):
                for size in range(1, 11):
                    getattr(torch.nn.functional if name == "softmax" else torch, name)(torch.ones(size))
            assert round_ < 100

    mode = CallMode()
    with mode:
        program()
    found = mode.capture()
    files, _ = file_texts(found, "a.py")
    assert (found.count, sum(len(file.tests) for file in files.values())) == (20_000, 11)


def test_file_texts__target_from_elsewhere__is_never_printed():
    call = ObservedCall(
        number=0, op="call_function", target="os.system", args=["true"], kwargs=[], modes=[], tensors=[], place="a.py:1"
    )
    bad = ObservedCall(
        number=0, op="call_function", target="torch.load", args=["x"], kwargs=[], modes=[], tensors=[], place="a.py:1"
    )
    for one in (call, bad):
        with pytest.raises(ProgramError):
            file_texts(Capture((one,)), "a.py")


def test_file_texts__line_break_in_the_name_of_a_file__stays_in_the_comment():
    call = ObservedCall(
        number=0, op="call_function", target="torch.ones", args=[2], kwargs=[], modes=[], tensors=[], place="a\nf()\r.py:1"
    )  # fmt: skip
    (file,) = file_texts(Capture((call,)), "a.py")[0].values()
    assert [line for line in file.text.splitlines() if "f()" in line] == ["# 1 call at a f() .py:1"]


@pytest.mark.parametrize(
    ("program", "stem"),
    [("src/train-2.py", "autotest_train_2"), ("train", "autotest_train"), ("%", "autotest_program")],
)
def test_file_stem__program__is_a_module_name(program, stem):
    assert file_stem(program) == stem


def test_capture__exception_in_the_block__keeps_what_was_captured(tmp_path, capsys):
    def block():
        with capture(tmp_path / "tests", "block"):
            torch.ones(2).exp()
            sys.exit(5)

    with pytest.raises(SystemExit):
        block()
    assert [file.name for file in tmp_path.glob("tests/*")] == ["autotest_block.py"]
    assert capsys.readouterr().err.startswith("captured 2 calls of 2 operators: 2 tests in ")


def test_capture__tests_that_exist__are_refused_before_the_block(tmp_path):
    for replace in (False, True):
        with capture(tmp_path, "block", replace=replace):
            torch.ones(2).exp()
    with pytest.raises(UsageError, match="--force"), capture(tmp_path, "block"):
        pytest.fail("the block ran")
