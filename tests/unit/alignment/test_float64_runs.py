"""Questions about tensors of one program share its runs in float64, and are answered as by runs of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.blame import float64_runs
from ci_autotest.alignment.blame.float64_runs import Float64Question, Float64Runs
from ci_autotest.alignment.blame.random_rounding import Formula
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from tests.engine import judged, record, substitute

BITS = 24
#: Runs of a whole program that a judgement may take, however many of its values differ.
RUNS = 25


class Counted(TorchBackend):
    """The reference, which counts its runs."""

    runs = 0

    def run(self, *args: Any, **how: Any) -> Any:
        self.runs += 1
        return super().run(*args, **how)


def written_later() -> Any:
    x = random_tensor(2, 3, 4)
    y = x * 3
    z = torch.exp(y)
    y.mul_(5)
    return z.sum() + y.sum()


def questions(runs: Float64Runs | None, reference: TorchBackend) -> list[Float64Question]:
    """Ask about each value and each gradient."""
    live = live_of(record(written_later))
    wider, places = (runs or Float64Runs()).widened(live, real.float32)
    steps = [index for index, step in enumerate(live.program.steps) if step.op != "output"]
    return [
        Float64Question(live, wider, (kind, places[index]), reference=reference, runs=runs)
        for kind in ("value", "gradient")
        for index in steps
    ]


def answers(asked: list[Float64Question]) -> list[Any]:
    found = []
    for question in asked:
        found += [question.rounded(BITS, seed, Formula.ITS_OWN) for seed in range(2)]
        found.append(question.answer(question.wider.sources, question.wider.cotangents, ("as it is",)))
    return found


def test_answer__shared_runs__are_few_and_answer_the_same():
    shared, alone = Counted(), Counted()
    ours, theirs = answers(questions(Float64Runs(shared), shared)), answers(questions(None, alone))
    assert [each is None for each in ours] == [each is None for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            # A copy of what is written to later draws other random numbers.
            real.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    # Two patterns and the data as they are, forward alone and with the backward pass; what is written to later; and the
    # gradients that only a run of their own has.
    assert shared.runs < alone.runs / 2


def test_trace__large_program__is_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(float64_runs, "_KEPT_BYTES", 8)
    shared = Counted()
    found = answers(questions(Float64Runs(shared), shared))
    assert shared.runs > len(found)


def steps_that_drift() -> Any:
    y = torch.sin(random_tensor(2, 3, 40))
    outputs = []
    for number in range(12):
        outputs.append((y + (1000 + number)) - (1000 + number))
    return tuple(outputs)


@pytest.mark.parametrize("error", [1.2e-7, 3e-7])
def test_judged__errors_accumulate_in_many_values__few_runs_tell(error, monkeypatch: pytest.MonkeyPatch):
    runs, run = [], TorchBackend.run

    def counted(self: TorchBackend, program: Any, *args: Any, **how: Any) -> Any:
        runs.append(len(program.calls))
        return run(self, program, *args, **how)

    attempt = record(steps_that_drift)
    monkeypatch.setattr(TorchBackend, "run", counted)
    judged(attempt, substitute(sin=lambda x: real.sin(x) * (1 + error)))
    assert runs.count(len(attempt.program.calls)) < RUNS
