"""Paddle in its own interpreter: operators of each family are aligned, wrong rows are seen, what is absent is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.hosting import Interpreter
from ci_autotest.backends.mapping.table import load_table
from ci_autotest.backends.mapping.translate import Translator
from ci_autotest.backends.remote import RemoteBackend
from ci_autotest.program.host_repro_glues import PADDLE
from tests.candidates import needs, path_of
from tests.engine import tried

PYTHON = path_of("paddle")
F = "torch.nn.functional"

pytestmark = needs("paddle")


def backend_with(rows):
    where = Interpreter("paddle", str(PYTHON), "paddle", "cpu", ())
    return RemoteBackend(where, Translator(load_table("paddle").extended(rows, "a test")))


@pytest.fixture(scope="module")
def paddle():
    backend = backend_with({})
    yield backend
    backend.close()


def x(*dims, **how):
    return random_tensor(dims=dims, **how)


def linear():
    return torch.nn.Linear(3, 4)(x(2, 3))


def conv2d():
    return torch.nn.Conv2d(2, 3, (2, 3), stride=2, padding=1)(x(2, 2, 5, 6))


def conv_transpose2d():
    return torch.nn.functional.conv_transpose2d(x(2, 4, 3, 3), x(4, 2, 2, 2), stride=2, groups=2)


def batch_norm():
    mean, var = x(3, requires_grad=False).clone(), x(3, low=0.1, high=2, requires_grad=False).clone()
    y = torch.nn.functional.batch_norm(x(4, 3, 2), mean, var, x(3), x(3), training=True, momentum=0.3)
    return y, mean, var


def layer_norm():
    return torch.nn.functional.layer_norm(x(2, 3, 4), (3, 4), x(3, 4), x(3, 4))


def mean_and_sum():
    y = x(2, 3, 4)
    return torch.sum(y, dim=(0, -1), keepdim=True), y.mean(1)


def max_of_a_dimension():
    return torch.max(x(3, 5), dim=1, keepdim=True)


def indexing():
    y, index = x(4, 5), random_tensor(dims=(3,), low=-4, high=4, dtype=int)
    return y[index, 1:4:2], y[y > 0], torch.gather(y, 1, torch.argsort(y, dim=1))


def chain_with_branches():
    y = x(2, 3)
    parts = torch.split(y * 2, 2, dim=1)
    return parts[0], parts[1] + y[:, 2:]


def integers_and_floats():
    return x(2, 3) + random_tensor(dims=(3,), dtype=int), x(2, 3) * 2, 3 - x(2)


def lstm():
    h, w = (x(1, 2, 4), x(1, 2, 4)), [x(16, 3), x(16, 4), x(16), x(16)]
    return torch.lstm(x(5, 2, 3), h, w, True, 1, 0.0, False, False, False)


def cross_entropy():
    target = random_tensor(dims=(4, 2), low=0, high=3, dtype=int)
    return torch.nn.functional.cross_entropy(x(4, 3, 2), target, weight=x(3, low=0.1, requires_grad=False))


def avg_pool2d():
    return torch.nn.functional.avg_pool2d(x(2, 3, 5, 5), 3, stride=2, padding=1)


def in_place():
    y = x(2, 3) * 1
    y += x(3)
    return y.mul_(2.0)


def shared_gradient():
    # The gradient of the first output is not to be what later ones are added to.
    y = torch.nn.functional.softmax(x(3, 4, 2), -1)
    return y.view(3, 1, 4, 2), torch.bmm(y, x(3, 2, 4))


def unused_output():
    values, _ = torch.sort(x(5))
    parts = torch.unbind(x(2, 3))
    return values * 2, parts[1]


def moved_and_cast():
    y = x(2, 3)
    return y.to("cpu"), y.to("cpu", torch.float64), y.to(x(1).to(torch.float64)), y.to("cpu", copy=True).exp()


def windows():
    return x(2, 7, requires_grad=False).unfold(-1, 3, 2)


def dtype_and_shape_that_are_read():
    y = x(3, 4)
    return torch.zeros(y.shape, dtype=y.dtype) + torch.softmax(y, dim=1)


def sizes_and_numbers():
    y = x(3, 4)
    numbers = torch.tensor([[1.5], [2], [-1]]) * torch.tensor(2, dtype=torch.int32)
    return y.reshape(y.size(1), y.size()[0]) * 2, y * numbers, torch.tensor([1, 2]), torch.tensor([True, False])


def complex_product():
    y = random_tensor(dims=(3, 3), dtype=real.complex64)
    return y @ y.conj()


@pytest.mark.parametrize(
    "body",
    [
        linear, conv2d, conv_transpose2d, batch_norm, layer_norm, mean_and_sum, max_of_a_dimension, indexing,
        chain_with_branches, integers_and_floats, lstm, cross_entropy, avg_pool2d, in_place, shared_gradient,
        unused_output, complex_product, moved_and_cast, windows, dtype_and_shape_that_are_read,
        sizes_and_numbers,
    ],
    ids=lambda body: body.__name__,
)  # fmt: skip
def test_paddle__operators_of_each_family__are_aligned(paddle, body):
    verdicts = [tried(body, paddle, case=case, profile="ordinary") for case in range(3)]
    assert [(verdict.outcome, verdict.oracle) for verdict in verdicts] == [("aligned", "")] * 3


def square_linear():
    return torch.nn.functional.linear(x(2, 3), x(3, 3))


def sum_of_rows():
    return torch.sum(x(3, 3), dim=1)


def padded_pool():
    return torch.nn.functional.avg_pool2d(x(1, 1, 4, 4), 2, padding=1)


#: A row that is wrong in one word, and the body that must show it.
WRONG = {
    "linear without transpose": (square_linear, f"{F}.linear", {"to": "paddle.nn.functional.linear", "rename": {"input": "x"}}),
    "dim dropped": (sum_of_rows, "torch.sum", {"to": "paddle.sum", "rename": {"input": "x"}, "default": {"dim": 1}, "reason": "wrong"}),
    "momentum not turned": (
        batch_norm,
        f"{F}.batch_norm",
        {"to": "paddle.nn.functional.batch_norm", "rename": {"input": "x", "eps": "epsilon"}},
    ),
    "padding left out": (padded_pool, f"{F}.avg_pool2d", {"to": "paddle.nn.functional.avg_pool2d", "rename": {"input": "x"}}),
}  # fmt: skip


@pytest.mark.parametrize(("body", "operator", "row"), WRONG.values(), ids=WRONG)
def test_paddle__a_wrong_row__is_seen(body, operator, row):
    backend = backend_with({operator: row})
    try:
        verdict = tried(body, backend, profile="ordinary")
    finally:
        backend.close()
    assert verdict.outcome == "misaligned"


def embedding_with_padding():
    index = random_tensor(dims=(3,), low=0, high=4, dtype=int)
    return torch.nn.functional.embedding(index, x(4, 2), padding_idx=1)


def dilated_pool():
    return torch.nn.functional.max_pool2d(x(1, 1, 6, 6), 2, dilation=2)


def fmod():
    return torch.fmod(x(3), 2)


def half_of_a_kernel():
    return torch.nn.functional.silu(random_tensor(dims=(3,), dtype=real.float16, requires_grad=False))


def half_of_a_gradient():
    return torch.exp(random_tensor(dims=(3,), dtype=real.float16))


def unbatched_pool():
    return torch.nn.functional.max_pool1d(x(2, 6), 2)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (embedding_with_padding, ("'padding_idx'", "torch.nn.functional.embedding")),
        (dilated_pool, ("holes (dilation)",)),
        (fmod, ("torch.fmod",)),
        (half_of_a_kernel, ("float16", "silu")),
        (half_of_a_gradient, ("float16", "exp_grad")),
        (unbatched_pool, ("2 dimensions",)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_paddle__without_counterpart__is_unsupported_and_named(paddle, body, names):
    verdict = tried(body, paddle, profile="ordinary")
    assert verdict.outcome == "unsupported"
    assert [name for name in names if name not in verdict.oracle] == []


def test_repro__a_leaf_in_a_layout_of_its_own__keeps_it():
    script = f"""
import numpy as np
import paddle
{PADDLE}
view = np.lib.stride_tricks.as_strided(np.arange(12, dtype="float32")[1:], (2, 3), (4, 8))
leaf = tensor(view, "float32", requires_grad=True)
print(leaf.numpy().tolist() == view.tolist(), list(leaf.strides), leaf.is_leaf, leaf.stop_gradient)
"""
    ran = subprocess.run([PYTHON, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "True [1, 2] True False"


DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip


def test_cast_together__every_pair_of_dtypes_and_ranks__is_torchs_result_type():
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import paddle
from ci_autotest.execute.adapters.paddle_pairs import cast_together
from ci_autotest.execute.frameworks.protocol import LackingError
made = [paddle.zeros(shape, dtype=dtype) for dtype in {DTYPES!r} for shape in ([], [2])]
for first in made:
    for second in made:
        try:
            print(*(str(value.dtype).removeprefix("paddle.") for value in cast_together([first, second])))
        except LackingError:
            print("complex32", "complex32")
"""
    ran = subprocess.run([PYTHON, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    made = [real.zeros(shape, dtype=getattr(real, dtype)) for dtype in DTYPES for shape in ((), (2,))]
    names = [str(real.result_type(first, second)).removeprefix("torch.") for first in made for second in made]
    assert [line for line in ran.stdout.splitlines() if len(line.split()) == 2] == [f"{name} {name}" for name in names]
