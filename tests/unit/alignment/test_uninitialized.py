"""Residue: what is written to between two runs, and how much of it."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ci_autotest.alignment.repeatability import NUMBERS, leave_residue
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.trace import Trace


def trace_of(*values: object) -> Trace:
    trace = Trace()
    trace.values = list(values)
    return trace


class Blocks(TorchDispatchMode):
    """Note the tensors that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[torch.Tensor] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        self.made.append(found)
        return found


def blocks_of(*values: object) -> list[torch.Tensor]:
    with Blocks() as blocks:
        leave_residue(TorchBackend(), trace_of(*values), NUMBERS[0])
    return [
        made for made in {made.data_ptr(): made for made in blocks.made}.values() if bool((made == NUMBERS[0]).all())
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_leave_residue__small_result__is_left_eight_times(dtype: torch.dtype):
    made = blocks_of(torch.ones(3, 4, dtype=dtype), (torch.ones(3, 4, dtype=dtype),))
    assert [(one.shape, one.dtype) for one in made] == [((3, 4), dtype)] * 8


@pytest.mark.parametrize(
    "value",
    [
        torch.eye(3).to_sparse(),
        torch.ones(3).to(torch.float8_e4m3fn),
        torch.ones(3, 3).to_mkldnn(),
        torch.ones(3, dtype=torch.int8),
        torch.ones(0),
        None,
    ],
    ids=["sparse", "float8", "mkldnn", "integers", "empty", "none"],
)
def test_leave_residue__what_holds_no_such_number__is_passed_over(value: object):
    assert blocks_of(value) == []


def test_leave_residue__large_results__take_about_their_own_memory():
    large = [torch.empty(1 << 23), torch.empty(1 << 22), torch.empty(1 << 10)]  # 32 MiB, 16 MiB, 4 KiB
    assert [made.numel() for made in blocks_of(*large)] == [1 << 23, 1 << 22, *[1 << 10] * 8]


def test_leave_residue__gradients__are_results_too():
    trace = trace_of()
    trace.gradients = {0: torch.ones(5), 1: None}
    with Blocks() as blocks:
        leave_residue(TorchBackend(), trace, NUMBERS[0])
    assert {tuple(made.shape) for made in blocks.made} == {(5,)}


def test_leave_residue__results_of_many_sizes__are_left_of_some():
    assert {made.numel() for made in blocks_of(*(torch.ones(size) for size in range(1, 100)))} == set(range(1, 17))
