"""Plain bodies: what the source proves to be the same in every case, and what it does not."""

from __future__ import annotations

import itertools

import pytest
import torch as real

from ci_autotest import (
    nothing,
    oneof,
    random,
    random_bool,
    random_dtype,
    random_pytorch_tensor,
    random_tensor,
    torch,
)
from ci_autotest.record.plainness import _functions, proved_plain

SIZE = 3
SIZES = [1, 2, 3]
DIMENSION = oneof(0, -1)


def one_call():
    return torch.exp(random_tensor())


def with_generators():
    """Draw sizes and arguments."""
    rows = random(1, 8).to(int)
    x = random_tensor(ndim=2, dim0=rows, dtype=random_dtype(["float"]))
    y = random_pytorch_tensor(2, rows, SIZE, dtype=oneof(torch.float32, torch.float64))
    return torch.sum(x @ y.T, dim=oneof(0, -1), keepdim=random_bool()), torch.nn.functional.softmax(
        x, random(0, 2) | nothing()
    )


def with_methods():
    x = random_tensor(ndim=2)
    y = x.mul(2) + 1.5
    y.add_(x[0, :1])
    y[0] = -1
    y += 2
    values, indices = torch.max(y, dim=1)
    return values, indices > 0, x.T


def with_a_branch():
    x = random_tensor()
    if SIZE > 2:
        x = x * 2
    return torch.exp(x)


def with_a_choice():
    return torch.exp(random_tensor()) if SIZE > 2 else torch.sin(random_tensor())


def with_a_loop():
    x = random_tensor()
    for _ in range(2):
        x = torch.exp(x)
    return x


def with_a_comprehension():
    return torch.cat([random_tensor(1) for _ in range(2)])


def helper(x):
    return torch.exp(x)


def with_a_helper():
    return helper(random_tensor())


def with_a_list_of_the_modules():
    return torch.exp(random_tensor(ndim=1, dim0=SIZES[0]))


def with_plain_torch():
    return real.exp(random_tensor())


def with_a_module():
    return torch.nn.Linear(2, 2)(random_tensor(2, 3, 2))


def with_a_random_operator():
    return torch.nn.functional.dropout(random_tensor(), 0.5)


def with_a_block():
    with torch.no_grad():
        return torch.exp(random_tensor())


def with_its_own_gradient():
    x = random_tensor()
    return torch.autograd.grad(torch.exp(x).sum(), [x])


def with_an_argument(size):
    return torch.exp(random_tensor(1, size))


def with_keywords(*, count=itertools.count()):  # noqa: B008 - that it is one object is the point
    return torch.exp(random_tensor(1, next(count)))


def with_any_arguments(*SIZE):  # noqa: N803 - as the constant
    return torch.exp(random_tensor(1, SIZE))


def with_a_generator_of_the_module():
    return torch.sum(random_tensor(2), DIMENSION)


class Counting(int):
    """A number that is another each time."""

    def __index__(self):
        return random.randint(1, 3)


COUNTING = Counting(2)


def with_a_number_of_another_class():
    return torch.exp(random_tensor(1, COUNTING))


def with_a_setting():
    return torch.exp(random_tensor()) + torch.backends.cudnn.benchmark


def with_a_text():
    return torch.exp(random_tensor() + ("%s" % random_tensor()))  # noqa: UP031


def with_a_not():
    return not random_tensor()


def with_a_lambda():
    exp = lambda x: torch.exp(x)  # noqa: E731
    return exp(random_tensor())


def with_stars():
    return torch.reshape(random_tensor(1), *[(1, -1)])


PLAIN = [one_call, with_generators, with_methods]
OTHERS = [
    with_a_branch, with_a_choice, with_a_loop, with_a_comprehension, with_a_helper, with_a_list_of_the_modules,
    with_plain_torch, with_a_module, with_a_random_operator, with_a_block, with_its_own_gradient, with_an_argument,
    with_a_not, with_a_lambda, with_stars, with_keywords, with_any_arguments, with_a_generator_of_the_module,
    with_a_number_of_another_class, with_a_setting, with_a_text,
]  # fmt: skip


@pytest.mark.parametrize("body", PLAIN, ids=lambda body: body.__name__)
def test_a_list_of_calls_of_what_is_drawn__is_plain(body):
    assert proved_plain(body) is not None


@pytest.mark.parametrize("body", OTHERS, ids=lambda body: body.__name__)
def test_whatever_may_differ_between_cases__is_not(body):
    assert proved_plain(body) is None


def test_closure__is_not_plain():
    size = 3

    def body():
        return torch.exp(random_tensor(1, size))

    assert proved_plain(body) is None


def test_a_name_that_means_something_else_by_now__ends_the_proof(monkeypatch):
    proof = proved_plain(with_generators)
    assert proof.holds
    monkeypatch.setitem(globals(), "SIZE", 4)
    assert not proof.holds


def test_a_file_that_is_another_by_now__proves_nothing(tmp_path):
    path = tmp_path / "bodies.py"
    path.write_text(
        "from ci_autotest import random_tensor, torch\ndef body():\n    return torch.exp(random_tensor(2))\n"
    )
    held = {}
    exec(compile(path.read_text(), str(path), "exec"), held)  # noqa: S102 - a file of ours
    path.write_text(path.read_text().replace("exp", "sin"))
    assert proved_plain(held["body"]) is None
    _functions.cache_clear()
    path.write_text(path.read_text().replace("sin", "exp"))
    assert proved_plain(held["body"]) is not None
