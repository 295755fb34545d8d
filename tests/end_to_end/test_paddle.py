"""Paddle in its own interpreter: operators of each family are aligned, wrong rows are seen, what is absent is named."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.program.function_source import FunctionLibrary
from ci_autotest.program.repro.script import of_library
from tests.candidates import needs
from tests.engine import tried
from tests.paddle_bodies import (
    PYTHON,
    WRONG,
    avg_pool2d,
    backend_with,
    batch_norm,
    chain_with_branches,
    complex_product,
    conv2d,
    conv_transpose2d,
    cross_entropy,
    in_place,
    indexing,
    integers_and_floats,
    layer_norm,
    linear,
    lstm,
    max_of_a_dimension,
    mean_and_sum,
    unused_output,
    x,
)

pytestmark = needs("paddle")


@pytest.fixture(scope="module")
def paddle():
    backend = backend_with({})
    yield backend
    backend.close()


def shared_gradient():
    # The gradient of the first output is not to be what later ones are added to.
    y = torch.nn.functional.softmax(x(3, 4, 2), -1)
    return y.view(3, 1, 4, 2), torch.bmm(y, x(3, 2, 4))


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


def arguments_of_another_type():
    y = random_tensor(dims=(6, 2, 4), requires_grad=False)
    labels = random_tensor(dims=(2, 3), low=1, high=4, dtype=int)
    loss = torch.nn.functional.ctc_loss(torch.nn.functional.log_softmax(y, 2), labels, (6, 5), [3, 2])
    slopes = torch.nn.functional.rrelu(y, 0.25, 0.5), torch.nn.functional.rrelu(y, training=False)
    return (
        *slopes,
        loss,
        torch.std(y, unbiased=False),
        torch.full((2,), 1.5, device="cpu"),
        torch.tensor(2.0, device="cpu"),
    )


@pytest.mark.parametrize(
    "body",
    [
        linear, conv2d, conv_transpose2d, batch_norm, layer_norm, mean_and_sum, max_of_a_dimension, indexing,
        chain_with_branches, integers_and_floats, lstm, cross_entropy, avg_pool2d, in_place, shared_gradient,
        unused_output, complex_product, moved_and_cast, windows, dtype_and_shape_that_are_read,
        sizes_and_numbers, arguments_of_another_type,
    ],
    ids=lambda body: body.__name__,
)  # fmt: skip
def test_paddle__operators_of_each_family__are_aligned(paddle, body):
    verdicts = [tried(body, paddle, case=case, profile="ordinary") for case in range(3)]
    assert [(verdict.outcome, verdict.oracle) for verdict in verdicts] == [("aligned", "")] * 3


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


def taken_of_everything():
    return torch.take_along_dim(x(3), random_tensor(dims=(2,), low=0, high=3, dtype=int))


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (embedding_with_padding, ("'padding_idx'", "torch.nn.functional.embedding")),
        (dilated_pool, ("dilated window",)),
        (fmod, ("torch.fmod",)),
        (half_of_a_kernel, ("float16", "silu")),
        (half_of_a_gradient, ("float16", "exp_grad")),
        (unbatched_pool, ("2 dimensions",)),
        (taken_of_everything, ("without an axis",)),
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
{FunctionLibrary(of_library("frameworks.paddle_views")).used_by("tensor")[0]}
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
from ci_autotest.host.adapters.paddle_promotion import cast_together
from ci_autotest.host.frameworks.protocol import LackingError
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
