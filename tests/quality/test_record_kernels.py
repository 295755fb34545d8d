"""The kernels of the third and fourth set: each differs from torch in the form of its issue, and in no other."""

import functools
import importlib

import pytest
import torch

from benchmarks.record.bugs import bugs
from tests.quality import fresh_calls, sample_calls


def tensors(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def parts(x):
    """Return real numbers, since a complex one is NaN for ``allclose`` where either of its parts is."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def is_same(one, other):
    pairs = list(zip(tensors(one), tensors(other), strict=True))
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return False
    # Some kernels compute the right result by another formula.
    return all(torch.allclose(parts(a), parts(b), rtol=1e-5, atol=1e-7, equal_nan=True) for a, b in pairs)


PARTS = {"sample": sample_calls.CALLS, "fresh": fresh_calls.CALLS}
#: Faults that the installed torch has itself on this processor: with AVX2, its own sinh is infinite in blocks.
OF_TORCH = {"sinh_in_blocks"} if torch.full((16,), 89.0).sinh().isinf().any() else set()
BUGS = {part: {bug.name: bug for bug in bugs() if bug.part == part} for part in PARTS}


@pytest.mark.parametrize("part", PARTS)
def test_calls__of_a_set__are_of_its_kernels(part):
    assert sorted(PARTS[part]) == sorted(BUGS[part])


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0:UserWarning")
@pytest.mark.parametrize(("part", "name"), [(part, name) for part, calls in PARTS.items() for name in calls])
def test_kernel__form_of_its_issue_alone__differs_from_torch(part, name):
    bug = BUGS[part][name]
    module, _, function = bug.path.rpartition(".")
    kernel = getattr(importlib.import_module(module), function)
    operator = functools.reduce(getattr, bug.operator.split(".")[1:], torch)
    wrong, right = PARTS[part][name]

    assert is_same(wrong(kernel), wrong(operator)) is (name in OF_TORCH)
    assert is_same(right(kernel), right(operator))
