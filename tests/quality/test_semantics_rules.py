"""Rules of record and replay that no other test is about; `tests/contract/test_semantics.py` says which test is for which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.kinds import TorchCandidate
from ci_autotest.program.codegen import body_lines
from ci_autotest.run.messages import CasesDone, Discover, Discovered, Hello, RunCases
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker import case_runner, memory
from ci_autotest.run.worker.dispatch import Dispatcher
from tests.engine import differences, is_sure, judged, record, substitute

if TYPE_CHECKING:
    from pathlib import Path

BACKEND = TorchBackend()


def x(**how: Any) -> Any:
    return random_tensor(2, 3, 4, **how)


def branching() -> Any:
    value = x(low=0.5, high=1.0)
    return value * 2 if torch.sum(value.detach()) > 0 else value * 3


def test_rule_13__candidate_of_another_mind__follows_the_references_branch_and_is_found():
    attempt = record(branching)
    other = substitute(sum=lambda value: -real.Tensor.sum(value))
    trace = other.run(attempt.program, attempt.sources)
    assert body_lines(attempt.program)[-1] == "mul = x * 2"
    assert real.equal(trace.values[-2], attempt.trace.values[-2])
    assert {item.what for item in differences(attempt, other)} == {"value of sum", "value of gt", "value of bool_0"}
    assert judged(record(branching), other).verdict.operator == "torch.sum"


@pytest.mark.parametrize(
    "wrong",
    [lambda value, dim: real.max(value, dim).values, lambda value, dim: (*real.Tensor.max(value, dim), 3)],
    ids=["one for two", "three for two"],
)
def test_rule_19__wrong_arity__is_a_misalignment_of_shape_and_no_crash(wrong: Any):
    attempt = record(lambda: torch.max(x(), 0))
    verdict = judged(attempt, substitute(max=wrong)).verdict
    assert (verdict.outcome, verdict.kind, verdict.operator) == ("misaligned", "shape", "torch.max")


def test_rule_20__flag_that_a_candidate_changes_later__is_seen_at_the_end():
    def sin(value: Any) -> Any:
        result = real.Tensor.sin(value)
        value.detach_()
        return result

    attempt = record(lambda: torch.sin(torch.exp(x())))
    found = differences(attempt, substitute(sin=sin))
    assert ("mutation", "exp after the run") in {(item.kind, item.what) for item in found}
    assert "requires_grad: candidate False, reference True" in next(
        item.detail for item in found if item.kind == "mutation"
    )
    assert not is_sure(record(lambda: torch.sin(torch.exp(x()))), substitute(sin=sin))


@pytest.mark.parametrize(
    ("scalar", "said"),
    [(np.float32(2.5), "2.5"), (np.int64(3), "3"), (np.bool_(True), "True"), (np.complex64(1j), "complex(0.0, 1.0)")],
)  # fmt: skip
def test_rule_22__numpy_scalar__becomes_a_number_of_pythons(scalar: Any, said: str):
    assert body_lines(record(lambda: x() * scalar).program) == [f"mul = x * {said}"]


BODIES = """
from ci_autotest import autotest, oneof, random, random_tensor, torch


@autotest()
def chain():
    x = random_tensor()
    return torch.exp(x) + torch.dropout(x, 0.5, True)


@autotest()
def in_place():
    y = random_tensor(ndim=2) * 2
    y.add_(1)
    return torch.exp(y).mul_(2)


@autotest()
def rejected_sometimes():
    return torch.matmul(random_tensor(2, 3, random(3, 5)), torch.exp(random_tensor(2, random(3, 5), 2)))


@autotest()
def hooked():
    y = torch.exp(random_tensor(2))
    y.register_hook(lambda gradient: gradient * 2)
    return torch.nn.functional.linear(y, torch.ones(3, 1)) if y.shape[-1] == 1 else y
"""


def outcomes(folder: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return all that the bench says of 34 cases of each test, in batches of a size, times aside."""
    monkeypatch.setattr(memory, "BATCH", size)
    monkeypatch.setattr(case_runner, "_PART_S", float("inf"))
    parts: list[CasesDone] = []
    dispatcher = Dispatcher(ProgressBeacon.create(), parts.append)
    candidates = [TorchCandidate(name="torch"), TorchCandidate(name="off")]
    dispatcher.answer(
        Hello(
            root=str(folder), folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=candidates,
            tolerances=[],
        )
    )  # fmt: skip
    dispatcher.worker_context.backends["off"] = substitute(
        exp=lambda value: real.Tensor.exp(value) + (value > 0.9) * 0.01
    )
    found = dispatcher.answer(Discover("bodies.py"))
    assert isinstance(found, Discovered)
    told = []
    for test in found.tests:
        last = dispatcher.answer(RunCases(test=test, cases=list(range(34)), candidates=["torch", "off"]))
        assert isinstance(last, CasesDone)
        merged = [msgspec.json.encode(part).decode() for part in (*parts, last)]
        told.append([re.sub(r'"\w*_s":[0-9.e+-]+', "", text) for text in merged])
        parts.clear()
    return told


def test_rule_21__batches_of_1_and_of_32__say_the_same_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "bodies.py").write_text(BODIES)
    one, many = (outcomes(tmp_path, size, monkeypatch) for size in (1, 32))
    assert [failures.count("misaligned") > 0 for (failures,) in one] == [True, True, True, True]
    assert one == many
