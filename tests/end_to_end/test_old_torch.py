"""torch 1.12.1 in its own interpreter against the torch of this one: version-to-version alignment.

It is not installed by `make install`: CPython 3.10 and `make candidates`, or the command in the reason below.
"""

from __future__ import annotations

import pytest
import torch as plain_torch

from ci_autotest import random_tensor, torch
from ci_autotest.backends.registry import build
from ci_autotest.kinds import ModuleCandidate
from tests.candidates import needs, path_of
from tests.engine import judged, record

PYTHON = path_of("torch-1.12")
pytestmark = needs("torch-1.12")
functional = torch.nn.functional


def candidate(**more):
    return build(ModuleCandidate(name="old", module="torch", python=str(PYTHON), **more), "cpu")


@pytest.fixture(scope="module")
def old():
    backend = candidate()
    yield backend
    backend.close()


def of(*dims, **how):
    return random_tensor(dims=dims, **how)


def complex_of(*dims):
    return of(*dims, dtype=plain_torch.complex128)


ALIGNED = {
    "gelu": lambda: functional.gelu(of(3, 5)),
    "matmul": lambda: of(2, 3, 4) @ of(4, 5),
    "a bfloat16 number of no dimension": lambda: of(dtype=plain_torch.bfloat16) * 2,
    "complex product": lambda: complex_of(3, 4) @ complex_of(4, 2),
    "conv_transpose2d": lambda: functional.conv_transpose2d(of(2, 4, 5, 3), of(4, 3, 3, 2), of(6), stride=2, groups=2),
    "a module with statistics": lambda: torch.nn.BatchNorm2d(3)(of(2, 3, 4, 5)),
    "an LSTM": lambda: torch.nn.LSTM(3, 4)(of(5, 2, 3)),
    "max": lambda: torch.max(of(3, 6), dim=1),
    "sort": lambda: torch.sort(of(3, 6), dim=0),
    "index_add": lambda: torch.index_add(
        of(4, 3), 0, of(3, dtype=plain_torch.int64, low=0, high=4), of(3, 3), alpha=2.0
    ),
    "fft": lambda: torch.fft.rfft(of(3, 8)),
    "solve": lambda: torch.linalg.solve(of(3, 3) + 4 * torch.eye(3), of(3, 2)),
}


@pytest.mark.parametrize("body", ALIGNED.values(), ids=ALIGNED)
def test_old_torch__operators_of_many_families_are_aligned_forward_and_backward(old, body):
    found = judged(record(body, profile="ordinary"), old).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


DRAWN = {
    "rand": lambda: torch.rand(17),
    "randn, of 64 bits": lambda: torch.randn(17, dtype=plain_torch.float64),
    "randint": lambda: torch.randint(0, 50, (17,)),
    "randperm": lambda: torch.randperm(17),
    "bernoulli": lambda: torch.bernoulli(of(17, low=0, high=1)),
    "normal_": lambda: torch.nn.init.kaiming_normal_(of(4, 5, requires_grad=False)),
    "uniform_": lambda: of(17, requires_grad=False).uniform_(-1, 2),
    "rrelu": lambda: functional.rrelu(of(40), training=True),
}


@pytest.mark.parametrize("body", DRAWN.values(), ids=DRAWN)
def test_old_torch__after_the_same_seed__draws_the_same_numbers(old, body):
    attempt = record(body, profile="ordinary")
    trace = old.run(attempt.program, attempt.sources)
    assert trace.untested is None
    values = list(zip(trace.values, attempt.trace.values, strict=True))
    assert all(plain_torch.equal(ours, theirs) for ours, theirs in values if isinstance(theirs, plain_torch.Tensor))


@pytest.mark.parametrize("dtype", [plain_torch.float32, plain_torch.bfloat16])
def test_old_torch__dropout__draws_others_on_some_processors_and_is_unsupported(old, dtype):
    found = judged(record(lambda: functional.dropout(of(40, dtype=dtype)), profile="ordinary"), old)
    assert (found.verdict.outcome, "draws random numbers" in found.verdict.oracle) == ("unsupported", True)


UNSUPPORTED = {
    "an operator": (lambda: torch.unflatten(of(6), 0, (2, 3)), "torch.unflatten"),
    "an argument": (lambda: torch.argsort(of(6), stable=True), "stable"),
    "a kernel of a dtype": (lambda: torch.exp(of(6, dtype=plain_torch.float16)), "'Half'"),
    "dim=None, which came later": (lambda: torch.mean(of(2, 3), dim=None, keepdim=True), "name = None"),
    "a derivative": (lambda: torch.aminmax(of(6)), "derivative"),
}


@pytest.mark.parametrize(("body", "named"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_old_torch__what_came_later__is_unsupported_and_named(old, body, named):
    found = judged(record(body, profile="ordinary"), old).verdict
    assert found.outcome == "unsupported", found.misalignment
    assert named in found.oracle


def test_old_torch__planted_wrong_row__is_misaligned():
    rows = {"torch.sin": {"to": "torch.cos", "positional": ["input"], "reason": "planted"}}
    backend = candidate(mapping=rows)
    try:
        found = judged(record(lambda: torch.sin(of(3, 4)), profile="ordinary"), backend).verdict
    finally:
        backend.close()
    assert (found.outcome, found.kind, found.operator) == ("misaligned", "value", "torch.sin")


def test_old_torch__a_defect_that_was_mended_since__is_found(old):
    # floor_divide of 1.12 still truncates.
    attempt = record(lambda: torch.floor_divide(of(9, dtype=plain_torch.int32), -2), profile="ordinary")
    found = judged(attempt, old).verdict
    assert (found.kind, found.blame) == ("value", "candidate")
