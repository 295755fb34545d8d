"""Bodies for Paddle, each of another family of operators, and its backend with rows that are right or wrong."""

from __future__ import annotations

import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.mapping.table import load_table
from ci_autotest.backends.framework.mapping.translation import Translator
from tests.candidates import path_of

PYTHON = path_of("paddle")


F = "torch.nn.functional"


def backend_with(rows):
    where = Interpreter("paddle", str(PYTHON), "paddle", "cpu", ())
    return RemoteBackend(where, Translator(load_table("paddle").extended(rows, "a test")))


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


def unused_output():
    values, _ = torch.sort(x(5))
    parts = torch.unbind(x(2, 3))
    return values * 2, parts[1]


def complex_product():
    y = random_tensor(dims=(3, 3), dtype=real.complex64)
    return y @ y.conj()


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
