"""Dtypes, devices, layouts and memory formats as arguments of a program."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor
from ci_autotest.backends.torch_constants import argument_of
from ci_autotest.call_capture.arguments import argument
from ci_autotest.program.check import CONSTANTS
from ci_autotest.program.ir import HOST_DEVICE, OWN_DEVICE, Device, DType, FrameworkConstant
from tests.engine import record


@pytest.mark.parametrize("target", sorted(CONSTANTS))
def test_argument_of__each_constant_that_a_program_may_name__is_it(target):
    value = getattr(real, target.removeprefix("torch."))
    assert (argument_of(value), argument(value, [])) == (FrameworkConstant(target), FrameworkConstant(target))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (real.bfloat16, DType("bfloat16")),
        (real.device("cpu"), Device(HOST_DEVICE)),
        (real.device("cuda", 1), Device(OWN_DEVICE)),
        (real.sparse_bsr, None),
        (1, None),
    ],
    ids=str,
)
def test_argument_of__other_values__are_what_a_program_has(value, expected):
    assert argument_of(value) == expected


def test_record__memory_format_of_five_dimensions__is_an_argument():
    step = record(lambda: random_tensor(5).contiguous(memory_format=real.channels_last_3d)).program.body[1]
    assert dict(step.kwargs) == {"memory_format": FrameworkConstant("torch.channels_last_3d")}
