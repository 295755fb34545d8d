"""Kernels by ctypes that read or write out of bounds, and right ones: each gets addresses, as a kernel in C does."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import torch as real

from ci_autotest import random_tensor, torch

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = {
    real.float32: ctypes.c_float, real.float64: ctypes.c_double, real.int64: ctypes.c_int64, real.int32: ctypes.c_int32,
}  # fmt: skip


class Kernel(NamedTuple):
    """A kernel, the operator that it answers, the body that draws its arguments, and what it does beside them."""

    name: str
    operator: str
    function: Callable[..., Any]
    body: Callable[[], object]
    kind: str = ""
    words: str = ""


def memory(tensor, before=0, behind=0):
    """Return the elements of a contiguous tensor as a C array, with some elements before and behind them."""
    kind = TYPES[tensor.dtype]
    size = tensor.numel() + before + behind
    return (kind * size).from_address(tensor.data_ptr() - before * ctypes.sizeof(kind))


def made(numbers, like, shape=None):
    return real.tensor(list(numbers), dtype=like.dtype).reshape(like.shape if shape is None else shape)


def blocks(number, size=16):
    return -(-number // size) * size


# Right ones.


def right_abs(x):
    return made((abs(value) for value in memory(x)), x)


def right_sum(x):
    total = 0.0
    for value in memory(x):
        total += value
    return real.tensor(total, dtype=x.dtype)


def right_relu(x):
    data = memory(x)
    for i in range(x.numel()):
        data[i] = max(data[i], 0.0)
    return x


def right_cumsum(x, dim=0):
    total, found = 0, []
    for value in memory(x):
        total += value
        found.append(total)
    return made(found, x)


# Reads.


def sum_of_a_block(x):
    return real.tensor(sum(memory(x, behind=blocks(x.numel()) - x.numel())), dtype=x.dtype)


def sum_of_one_more(x):
    return real.tensor(sum(memory(x, behind=1)), dtype=x.dtype)


def mean_with_one_before(x):
    return real.tensor(sum(memory(x, before=1)) / x.numel(), dtype=x.dtype)


def max_of_a_block(x):
    return real.tensor(max(memory(x, behind=3)), dtype=x.dtype)


def differences(x):
    data = memory(x, before=1)
    return made((data[i + 1] - data[i] for i in range(1, x.numel())), x, (x.numel() - 1,)) + 0 * data[0]


def cumsum_from_before(x, dim=0):
    data, found = memory(x, before=1), []
    total = data[0]
    for i in range(x.numel()):
        total += data[i + 1]
        found.append(total)
    return made(found, x)


def shifted_abs(x):
    data = memory(x, behind=1)
    return made((abs(data[i]) + 0 * data[i + 1] for i in range(x.numel())), x)


def flipped(x, dims):
    data = memory(x, behind=1)
    n = x.numel()
    found = [data[n - i] for i in range(n)]
    return made([found[i] if i else data[n - 1] + 0 * found[0] for i in range(n)], x) * 0 + x.flip(0) + 0 * found[0]


def wide_softmax(x, dim=0):
    data = real.tensor(list(memory(x, behind=blocks(x.numel()) - x.numel())), dtype=x.dtype)
    weights = (data - x.max()).exp()
    return (weights / weights.sum())[: x.numel()]


def product_of_wide_rows(a, b):
    data = memory(a, behind=4)
    rows, inner = a.shape
    found = [
        sum(data[i * inner + k] * float(b[k, j]) for k in range(inner)) + 0 * data[(i + 1) * inner]
        for i in range(rows)
        for j in range(b.shape[1])
    ]
    return real.tensor(found, dtype=a.dtype).reshape(rows, b.shape[1])


# Writes.


def writing(function, offset, count, value):
    """Return a kernel that is right, and keeps something beside its input: behind it for an offset of 0 or more."""

    def kernel(x, *args, **kwargs):
        found = function(x, *args, **kwargs)
        before = max(-offset, 0)
        data = memory(x, before=before, behind=max(offset, 0) + count)
        start = before + offset if offset < 0 else x.numel() + offset
        for i in range(count):
            data[start + i] = value
        return found

    return kernel


def relu_of_blocks(x):
    data = memory(x, behind=blocks(x.numel()) - x.numel())
    for i in range(len(data)):
        data[i] = max(data[i], 0.0) if data[i] == data[i] else 0.0
    return x


# Memory that a kernel allocates.


def abs_into(make, offset=0, count=0):
    """Return a kernel that is right, and writes ``count`` elements beside its result, ``offset`` from its end."""

    def kernel(x):
        found = make(x)
        data, size = memory(found, before=8, behind=8), x.numel()
        for i, value in enumerate(memory(x)):
            data[8 + i] = abs(value)
        for i in range(count):
            data[8 + size + offset + i] = 7
        return found

    return kernel


def sum_with_a_workspace(size, reads=0):
    """Return a kernel that keeps four partial sums in a workspace of ``size`` elements, and reads behind it."""

    def kernel(x):
        partial = real.zeros(size, dtype=x.dtype)
        data, values = memory(partial, behind=4), list(memory(x))
        for i in range(4):
            data[i] = sum(values[i::4])
        return real.tensor(sum(data[i] for i in range(4)) + sum(0 * data[4 + i] for i in range(reads)), dtype=x.dtype)

    return kernel


def vector(**how):
    return random_tensor(1, dim0=11, requires_grad=False, **how)


def body_of(function):
    return lambda: function(vector())


def whole(function):
    return lambda: function(vector(dtype=int, low=-50, high=50))


def in_place():
    return (vector() + 0.0).relu_()


def on_an_input():
    return vector().relu_()


RIGHT = (
    Kernel("abs", "abs", right_abs, body_of(torch.abs)),
    Kernel("sum", "sum", right_sum, body_of(torch.sum)),
    Kernel("relu in place", "relu", right_relu, on_an_input),
    Kernel("cumsum", "cumsum", right_cumsum, lambda: torch.cumsum(vector(), 0)),
    Kernel("abs of integers", "abs", right_abs, whole(torch.abs)),
    Kernel("abs into empty", "abs", abs_into(real.empty_like), body_of(torch.abs)),
    Kernel("abs into zeros", "abs", abs_into(lambda x: x.new_zeros(x.shape)), whole(torch.abs)),
    Kernel("abs into a resized result", "abs", lambda x: real.abs(x, out=x.new_empty(0)), body_of(torch.abs)),
    Kernel("sum with a workspace", "sum", sum_with_a_workspace(4), body_of(torch.sum)),
)
_READS = "reads beside its inputs"
READS = (
    Kernel("sum of a block", "sum", sum_of_a_block, body_of(torch.sum), "value", _READS),
    Kernel("sum of one more", "sum", sum_of_one_more, body_of(torch.sum), "value", _READS),
    Kernel("mean with one before", "mean", mean_with_one_before, body_of(torch.mean), "value", _READS),
    Kernel("max of a block", "amax", max_of_a_block, lambda: torch.amax(vector(low=-5, high=-1)), "value", _READS),
    Kernel("differences", "diff", differences, body_of(torch.diff), "value", _READS),
    Kernel("cumsum from before", "cumsum", cumsum_from_before, lambda: torch.cumsum(vector(), 0), "value", _READS),
    Kernel("shifted abs", "abs", shifted_abs, body_of(torch.abs), "value", _READS),
    Kernel("flip from one behind", "flip", flipped, lambda: torch.flip(vector(), (0,)), "value", _READS),
    Kernel("softmax of a block", "softmax", wide_softmax, lambda: torch.softmax(vector(), 0), "value", _READS),
    Kernel(
        "product of wide rows", "mm", product_of_wide_rows,
        lambda: torch.mm(random_tensor(2, dim0=3, dim1=4), random_tensor(2, dim0=4, dim1=2)), "value", _READS,
    ),
    Kernel("integers, one more", "sum", sum_of_one_more, whole(torch.sum), "value", _READS),
)  # fmt: skip
WRITES = (
    Kernel("zeros behind", "abs", writing(right_abs, 0, 3, 0.0), body_of(torch.abs), "mutation", "writes 3 elements behind x"),
    Kernel("one behind", "abs", writing(right_abs, 0, 1, 7.0), body_of(torch.abs), "mutation", "writes 1 element behind"),
    Kernel("one before", "abs", writing(right_abs, -1, 1, 7.0), body_of(torch.abs), "mutation", "writes 1 element before"),
    Kernel("four before", "sum", writing(right_sum, -4, 4, 1.0), body_of(torch.sum), "mutation", "writes 4 elements before"),
    Kernel("far behind", "sum", writing(right_sum, 32, 2, 1.0), body_of(torch.sum), "mutation", "writes 2 elements behind"),
    Kernel("integers behind", "abs", writing(right_abs, 0, 2, 5), whole(torch.abs), "mutation", "writes 2 elements behind"),
    Kernel("integers before", "sum", writing(right_sum, -2, 2, 5), whole(torch.sum), "mutation", "writes 2 elements before"),
    Kernel(
        "partial sums behind", "cumsum", writing(right_cumsum, 0, 8, 1.5), lambda: torch.cumsum(vector(), 0), "mutation",
        "writes 8 elements behind",
    ),
    Kernel("relu of blocks", "relu", relu_of_blocks, on_an_input, "mutation", "behind"),
)  # fmt: skip
_EMPTY, _ZEROS = "the float32[11] that it gets from torch.empty_like", "the float32[3] that it gets from torch.zeros"
RESULTS = (
    Kernel("one behind its result", "abs", abs_into(real.empty_like, 0, 1), body_of(torch.abs), "mutation", f"writes 1 element behind {_EMPTY}"),
    Kernel("two before it", "abs", abs_into(real.empty_like, -13, 2), body_of(torch.abs), "mutation", f"writes 2 elements before {_EMPTY}"),
    Kernel(
        "integers behind it", "abs", abs_into(lambda x: x.new_empty(x.shape), 2, 3), whole(torch.abs), "mutation",
        "writes 3 elements behind the int64[11] that it gets from torch.new_empty",
    ),
    Kernel("behind a workspace", "sum", sum_with_a_workspace(3), body_of(torch.sum), "mutation", f"writes 1 element behind {_ZEROS}"),
    Kernel("behind a copy", "abs", abs_into(real.clone, 0, 1), body_of(torch.abs), "mutation", "gets from torch.clone"),
    Kernel(
        "reads behind a workspace", "sum", sum_with_a_workspace(4, reads=1), body_of(torch.sum), "value",
        "reads beside memory that it allocates",
    ),
)  # fmt: skip
