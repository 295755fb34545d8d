"""Expectations of a body: every side is held against them, PyTorch too, by their own tolerance."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch as real

from ci_autotest import expect, random, random_tensor, torch
from ci_autotest.alignment.probe import probe_of
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.mapping.table import MappingTable
from ci_autotest.backends.framework.mapping.translation import translated
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.errors import AuthorError, ProgramError
from ci_autotest.program.check import check_program
from ci_autotest.program.codegen import function_text
from ci_autotest.program.ir import EXPECT, Program
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from tests.engine import is_sure, judged, record, recorded, substitute, tried

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.protocol import Backend

#: PyTorch as a candidate.
PYTORCH = TorchBackend(is_candidate=True)


def of_numpy(factor: float = 1.0, **tolerance: float) -> Any:
    x = random_tensor(2, 3, 4)
    y = torch.exp(x)
    expect(y, lambda x: np.exp(x.astype(np.float64)) * factor, x, **tolerance)
    return torch.relu(y)


def of_a_list() -> None:
    x = torch.ones(3)
    expect(torch.cumsum(x, 0), [1, 2, 3])
    expect(x.sum(), 3)


def of_another_step() -> None:
    x = random_tensor(2, 3, 4)
    expect(torch.sqrt(x * x), torch.abs(x))


def in_place() -> Any:
    x = random_tensor(2, 3, 4, requires_grad=False).clone()
    expect(x, lambda x: x, x)
    x.mul_(0)
    expect(x, 0)
    return x


def of_integers(value: Any) -> None:
    expect(torch.ones(3, dtype=real.int8).sum(dtype=real.int8), value)


def with_a_module() -> Any:
    y = torch.nn.Linear(4, 2)(random_tensor(2, 3, 4))
    expect(torch.zeros_like(y), 0.0)
    expect(torch.zeros_like(y), np.float32(0.0))
    return y


def nearly(factor: float) -> Backend:
    return substitute(exp=lambda x: real.exp(x) * factor)


RIGHT = {
    "numpy": (of_numpy, PYTORCH),
    "own tolerance is looser": (partial(of_numpy, 1.01, rtol=0.1, atol=0.0), PYTORCH),
    "own tolerance is looser, kernel": (partial(of_numpy, 1.01, rtol=0.1, atol=0.0), nearly(1 + 1e-7)),
    "a list": (of_a_list, PYTORCH),
    "another step": (of_another_step, PYTORCH),
    "in place": (in_place, PYTORCH),
    "integers": (partial(of_integers, 3.0), PYTORCH),
    "a module": (with_a_module, PYTORCH),
    "compiled": (of_numpy, CompileBackend({"backend": "eager"})),
    "rewritten": (of_numpy, FxBackend(None)),
}


@pytest.mark.parametrize(("body", "backend"), RIGHT.values(), ids=RIGHT)
def test_expect__as_expected__is_aligned(body: Callable[[], object], backend: Backend):
    verdict = tried(body, backend)
    assert (verdict.outcome, verdict.kind) == ("aligned", None)


WRONG = {
    "pytorch": (partial(of_numpy, 1.01), PYTORCH, "torch.exp", "value"),
    "pytorch, compiled": (partial(of_numpy, 1.01), CompileBackend({"backend": "eager"}), "torch.exp", "value"),
    "kernel, right by the test's tolerance": (partial(of_numpy, rtol=1e-7, atol=0.0), nearly(1 + 2e-6), "torch.exp",
                                              "value"),
    "number": (lambda: expect(torch.ones(3).sum(), 4), PYTORCH, "torch.sum", "value"),
    "NaN": (lambda: expect(torch.ones(3).sum(), math.nan), PYTORCH, "torch.sum", "value"),
    "shape": (lambda: expect(torch.ones(3).sum(), [3, 3]), PYTORCH, "torch.sum", "shape"),
    "shape of a function's result": (
        lambda: expect(torch.ones(2, 3).sum((0, 1), keepdim=True), np.sum, torch.ones(2, 3)), PYTORCH, "torch.sum", "shape",
    ),
    "shape of an array": (
        lambda: expect(torch.ones(3).sum(0, keepdim=True), np.array(3.0)), PYTORCH, "torch.sum", "shape",
    ),
    "integers: another number": (partial(of_integers, 4), PYTORCH, "torch.sum", "value"),
    "integers: no integer": (partial(of_integers, 3.5), PYTORCH, "torch.sum", "dtype"),
    "integers: outside of the dtype": (partial(of_integers, 259), PYTORCH, "torch.sum", "dtype"),
    "complex for real": (lambda: expect(torch.ones(3).sum(), 3 + 1j), PYTORCH, "torch.sum", "dtype"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "backend", "operator", "kind"), WRONG.values(), ids=WRONG)
def test_expect__another_value__is_misaligned(body: Callable[[], object], backend: Backend, operator: str, kind: str):
    verdict = tried(body, backend)
    assert (verdict.outcome, verdict.operator, verdict.kind, verdict.blame) == (
        "misaligned", operator, kind, "candidate",
    )  # fmt: skip
    assert verdict.misalignment is not None
    assert "what the test expects" in verdict.misalignment.detail


@pytest.mark.parametrize("strictness", ["tolerance", "measured", "ulp"])
def test_expect__any_strictness__holds_by_the_tolerance_that_it_names(strictness: Any):
    body = partial(of_numpy, 1.0001, rtol=1e-3, atol=0.0)
    assert tried(body, PYTORCH, Rules(strictness=strictness)).outcome == "aligned"


def test_expect__fast_path__is_sure_only_within_the_tolerance_of_the_expectation():
    answers = [is_sure(record(partial(of_numpy, rtol=rtol, atol=0.0)), nearly(1 + 2e-6)) for rtol in (1e-5, 1e-7)]
    assert answers == [True, False]


def test_expect__program_of_a_finding__has_what_is_expected_and_no_later_step():
    live = judged(record(partial(of_numpy, 1.01)), PYTORCH).live
    assert [step.target for step in live.program.body] == ["t0", "t1", "torch.exp", EXPECT, "output"]
    assert function_text(live.program) == (
        "def program(x, expected):\n    exp = torch.exp(x)\n    exp_1 = exp.detach().clone()\n    return (exp_1,)\n"
    )


def test_expect__a_probe_of_the_case__expects_nothing():
    probe = probe_of(record(of_numpy), TorchBackend(), lambda _: None)
    assert probe is not None
    assert EXPECT not in {step.target for step in probe.program.steps}


def test_expect__program_of_another_framework__has_the_value_itself():
    table = MappingTable("torch", "", "torch", like_torch=True, rows={})
    steps = translated(live_of(record(of_numpy)).program, table).program.steps
    assert [step.target for step in steps if step.args][2:] == ["torch.exp", "clone", "torch.relu", "output"]


def test_expect__saved_program__is_read_back():
    saved = recorded(of_numpy)
    assert decode(encode_program(saved), encode_tensors(saved)).program == saved.program


@pytest.mark.parametrize("at", [(1, None), (2, -1.0), (2, "0"), (3, math.nan)])
def test_check_program__expectation_that_was_never_recorded__is_refused(at: tuple[int, Any]):
    program = live_of(record(partial(of_numpy, rtol=0.1, atol=0.1))).program
    index = next(i for i, step in enumerate(program.body) if step.target == EXPECT)
    args = [*program.body[index].args]
    args[at[0]] = at[1] if at[1] is not None else args[0]  # no input
    body = [*program.body]
    body[index] = body[index]._replace(args=tuple(args))
    with pytest.raises(ProgramError, match="expects something that is no input"):
        check_program(Program((), tuple(body)))


REFUSED = {
    "no tensor": (lambda: expect(3, 3), "got int 3, which is no recorded tensor"),
    "one tolerance": (lambda: expect(torch.ones(1), 1, rtol=0.1), "only one of rtol and atol"),
    "no tolerance": (lambda: expect(torch.ones(1), 1, rtol=-1, atol=0), "expect(rtol=-1) is not a tolerance"),
    "a text": (lambda: expect(torch.ones(1), "one"), "which is no array of numbers"),
    "ragged": (lambda: expect(torch.ones(2), [1, [1, 2]]), "which is no array of numbers"),
    "arguments without a function": (lambda: expect(torch.ones(1), 1, 2), "only a function takes arguments"),
    "the function raises": (lambda: expect(torch.ones(1), math.sqrt, -1), "raised ValueError"),
    "no operator": (lambda: expect(random_tensor(1), 1), "calls no operator of torch"),
}


@pytest.mark.parametrize(("body", "said"), REFUSED.values(), ids=REFUSED)
def test_expect__wrong_use__says_what_to_write(body: Callable[[], object], said: str):
    with pytest.raises(AuthorError, match=re.escape(said)):
        record(body)


def test_expect__outside_a_test__is_refused():
    with pytest.raises(AuthorError, match="outside a test"):
        expect(real.ones(1), 1)


def test_expect__generator_as_an_argument__has_its_value():
    def body() -> None:
        n = random(2, 9).to(int)
        expect(torch.full((2,), 0.5) * n, lambda n: np.full(2, n / 2), n)

    assert tried(body, PYTORCH).outcome == "aligned"


def test_expect__rules_of_the_test__hold_without_a_tolerance_of_its_own():
    body = partial(of_numpy, 1.01)
    assert tried(body, PYTORCH, replace(Rules(), rtol=0.1, atol=0.1)).outcome == "aligned"
