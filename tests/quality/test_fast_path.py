"""The fast path says "surely aligned" of nothing in which ``compare`` finds a difference, in this process and of bytes."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
import torch

from ci_autotest.alignment.compare import compare
from ci_autotest.alignment.fast_path import surely_aligned
from ci_autotest.alignment.tolerance_rules import Rules, ToleranceRow
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.mapping.translation import Translated
from ci_autotest.backends.framework.response import readers_of
from ci_autotest.backends.framework.response_trace import ResponseTrace
from ci_autotest.backends.sameness import byte_view
from ci_autotest.backends.snapshots import metadata, observed
from ci_autotest.backends.trace import Attempt, Trace
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec

NAN, INF = float("nan"), float("inf")
ONES = torch.ones(3)
#: What the candidate has, and the reference.
PAIRS = {
    "equal": (ONES, ONES),
    "NaN with NaN": (torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN])),
    "NaN with a number": (torch.tensor([1.0, NAN]), torch.tensor([1.0, 2.0])),
    "number with NaN": (torch.tensor([1.0, 2.0]), torch.tensor([1.0, NAN])),
    "infinity with a number": (torch.tensor([INF]), torch.tensor([1e38])),
    "infinities of two signs": (torch.tensor([INF]), torch.tensor([-INF])),
    "zeros of two signs": (torch.tensor([-0.0]), torch.tensor([0.0])),
    "a flushed denormal": (torch.tensor([0.0]), torch.tensor([1e-40])),
    "within tolerance": (ONES + 1e-6, ONES),
    "outside tolerance": (ONES + 1e-3, ONES),
    "one of many": (torch.cat([torch.zeros(9_999), ONES[:1]]), torch.zeros(10_000)),
    "one of very many": (torch.cat([torch.zeros(99_999), ONES[:1]]), torch.zeros(100_000)),
    "50 ULP": (torch.tensor([1.0 + 50 * 2.0**-23]), torch.tensor([1.0])),
    "a ULP of bfloat16": (torch.tensor([1.0078125], dtype=torch.bfloat16), torch.tensor([1.0], dtype=torch.bfloat16)),
    "half precision": (torch.tensor([1.1], dtype=torch.float16), torch.tensor([1.0], dtype=torch.float16)),
    "double": (torch.tensor([1.0 + 1e-5], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)),
    "complex": (torch.tensor([1 + 1e-2j]), torch.tensor([1 + 0j])),
    "integers": (torch.tensor([2**60 + 1]), torch.tensor([2**60])),
    "booleans": (torch.tensor([True]), torch.tensor([False])),
    "other dtype": (ONES.double(), ONES),
    "other shape of as many": (ONES.reshape(1, 3), ONES),
    "broadcast": (torch.ones(1), ONES),
    "empty, other shape": (torch.ones(0, 2), torch.ones(2, 0)),
    "0-dim": (torch.tensor(1.0), torch.tensor([1.0])),
    "other strides": (torch.arange(6.0).reshape(2, 3).t().contiguous().t(), torch.arange(6.0).reshape(2, 3)),
    "requires grad": (ONES.clone().requires_grad_(), ONES),
}
#: Of these the fast path must be sure, or it would be of no use.
SURE = {"equal", "NaN with NaN"}


def row(**keys):
    """Return rules with one row, for the operator of the program."""
    given = {"rtol": None, "atol": None, **keys}
    return Rules(rows=(ToleranceRow("torch.square", **given),))


RULES = {
    "tolerance": Rules(),
    "measured": Rules(strictness="measured"),
    "measured by a factor": Rules(strictness="measured", rows=(ToleranceRow("*", None, None, factor=1.0),)),
    "ulp": Rules(strictness="ulp"),
    "bitwise": Rules(strictness="bitwise"),
    "share": row(rtol=1e-6, atol=1e-6, share=0.001),
    "relative norm": row(metric="relative_norm", limit=1e-2),
    "cosine": row(metric="cosine", limit=0.999),
    "signal to noise": row(metric="snr_db", limit=40.0),
    "ulp of a row": row(metric="ulp", limit=64.0),
}


def program_of(spec: TensorSpec) -> Program:
    steps = (Step(PLACEHOLDER, "t0", (spec,)), Step(CALL_FUNCTION, "torch.square", (Ref(0),)))
    return Program((), (*steps, Step(OUTPUT, "output", (Ref(1),))))


def trace_of(value: torch.Tensor) -> Trace:
    """Return what is seen of a program with an input of ones and this value."""
    trace, values = Trace(), [torch.ones(3), value.detach().clone().requires_grad_(value.requires_grad), None]
    trace.values = values
    trace.facts = [None if one is None else (one.requires_grad, one.is_leaf, one._version) for one in values]
    return trace


def sent_by_a_host(program: Program, candidate: Trace, reference: Trace) -> ResponseTrace:
    """Return the trace of a host that saw what a candidate saw, with its bytes not loaded yet."""
    buffers: list[memoryview] = []

    def entry(value):
        if value is None:
            return ["plain", None]
        told = metadata(value)
        buffers.append(byte_view(value.detach()))
        return ["tensor", told.dtype, list(told.shape), told.requires_grad, told.is_leaf, len(buffers) - 1]

    answer = {
        "values": [entry(value) for value in candidate.values],
        "copies": [],
        "gradients": [[key, entry(value)] for key, value in candidate.gradients.items()],
        "failure": None,
        "backward_failure": None,
        "lacking": None,
    }
    trace = ResponseTrace(program, reference)
    trace.translated = Translated(program, range(len(program.steps)))
    (trace.reader,) = readers_of(msgspec.json.encode([answer]), buffers, lambda _: [])
    trace.loader = partial(RemoteBackend._take, object.__new__(RemoteBackend))
    return trace


def answers(left, right, rules, *, sent: bool, is_gradient: bool):
    """Return whether the fast path is sure of a pair, and what ``compare`` finds in it."""
    program = program_of(TensorSpec("float32", (3,), (1,), 0, 3))
    if is_gradient:
        left, right = left.detach(), right.detach()
        reference, candidate = trace_of(ONES), trace_of(ONES)
        reference.gradients, candidate.gradients = {0: right}, {0: left}
    else:
        reference, candidate = trace_of(right), trace_of(left)
    trace = sent_by_a_host(program, candidate, reference) if sent else candidate
    attempt = Attempt(program, reference, {}, {}, [], "ordinary", None)
    is_sure = surely_aligned([attempt], [trace], rules) == {0}
    tolerance = rules.tolerance(rules.operators(program.steps), str(right.dtype).removeprefix("torch."))
    # At `measured` the reference is as near to float64 as can be, which allows a candidate the least.
    exact = right.detach().double() if right.is_floating_point() else None
    found = compare(
        observed(left), observed(right)._replace(exact=exact), tolerance,
        check_grad_flags=not is_gradient, check_strides=not sent,
    )  # fmt: skip
    return is_sure, found


@pytest.mark.parametrize("is_gradient", [False, True], ids=["value", "gradient"])
@pytest.mark.parametrize("sent", [False, True], ids=["in this process", "bytes of a host"])
@pytest.mark.parametrize("name", PAIRS)
def test_fast_path__is_sure__compare_finds_nothing(name, sent, is_gradient):
    found = {key: answers(*PAIRS[name], rules, sent=sent, is_gradient=is_gradient) for key, rules in RULES.items()}
    assert {key: what for key, (is_sure, what) in found.items() if is_sure and what is not None} == {}
    if name in SURE:
        assert all(is_sure for is_sure, _ in found.values())
