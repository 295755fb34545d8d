"""Batches: how many cases run together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.config import Candidate
from ci_autotest.run import casework
from ci_autotest.run.bench import Bench
from ci_autotest.run.memory import Footprint
from ci_autotest.run.messages import Discover, Hello, RunCases
from ci_autotest.run.place import Place
from ci_autotest.run.work import Work
from tests.engine import record

BODIES = """
from ci_autotest import autotest, random_tensor, torch

@autotest(profiles=[])
def small():
    return torch.exp(random_tensor(2))

@autotest(profiles=[])
def large():
    return torch.exp(random_tensor(2, 512, 4096))

@autotest()
def of_two_dtypes():
    return torch.tanh(torch.mul(random_tensor(dtype=torch.float64), random_tensor(2, 1, 1)))
"""


def bench_in(folder: Path) -> Bench:
    (folder / "bodies.py").write_text(BODIES)
    bench = Bench(Place.create(), lambda _: None)
    bench.answer(
        Hello(
            root=str(folder), folders=[], seed=0, strictness="tolerance", reference_device="cpu",
            candidates=[Candidate(name="torch", backend="torch")], tolerances=[],
        )
    )  # fmt: skip
    return bench


def batches_of(name: str, folder: Path, monkeypatch) -> list[list[int]]:
    bench = bench_in(folder)
    seen = []
    prefetch = bench.equipment.attempts.prefetch
    monkeypatch.setattr(
        bench.equipment.attempts, "prefetch", lambda key, cases: (seen.append(list(cases)), prefetch(key, cases))
    )
    test = next(test for test in bench.answer(Discover("bodies.py")).tests if test.name == name)
    bench.answer(RunCases(test=test, cases=list(range(100)), candidates=["torch"]))
    return [cases for at, cases in enumerate(seen) if at == 0 or cases != seen[at - 1]]


def test_small_tensors__run_many_at_a_time__but_for_the_first_of_a_test(tmp_path, monkeypatch):
    batches = [range(1), range(1, 26), range(26, 100)]  # those to come are spread evenly
    assert batches_of("small", tmp_path, monkeypatch) == list(map(list, batches))


def test_large_tensors__run_as_few_as_memory_allows(tmp_path, monkeypatch):
    assert {len(cases) for cases in batches_of("large", tmp_path, monkeypatch)} <= {
        casework._BATCH_BYTES >> 26,
        1,
        2,
        3,
    }


@pytest.mark.parametrize("size", [1, 80])
def test_coverage__dtypes_that_depend_on_sizes__are_all_counted_in_any_batch(size, tmp_path, monkeypatch):
    monkeypatch.setattr(casework, "BATCH", size)
    bench = bench_in(tmp_path)
    test = next(test for test in bench.answer(Discover("bodies.py")).tests if test.name == "of_two_dtypes")
    done = bench.answer(RunCases(test=test, cases=list(range(40)), candidates=["torch"]))
    assert done.covered["torch"]["torch.tanh"].dtypes == ("float32", "float64")


def test_batches_in_flight__share_the_memory_of_one(tmp_path):
    work = bench_in(tmp_path)._casework
    eighth = casework._BATCH_BYTES // 8
    work._overwritten["t"], work._footprints["t"] = frozenset(), Footprint(1, eighth, eighth)
    assert [len(work._next("t", list(range(8)), ahead)) for ahead in (0, 1)] == [8, 4]


@pytest.mark.parametrize("in_lockstep", [True, False])
def test_memory_of_a_batch__is_that_of_all_its_cases__and_of_the_largest(in_lockstep):
    body = lambda: torch.exp(random_tensor(1))  # noqa: E731 - a body
    recorded = {case: (0, record(body, case)) for case in range(40)}
    sizes = [attempt.trace.values[0].numel() for _, attempt in recorded.values()]
    work = Work([], recorded)
    if in_lockstep:
        work.form()
        assert work.locksteps
    assert min(sizes) < max(sizes)
    assert work.footprint() == Footprint(40, 4 * 4 * 2 * sum(sizes), 4 * 4 * 2 * max(sizes))


@pytest.mark.parametrize(
    ("footprint", "fits"),
    [
        (Footprint(), 80),  # nothing is known
        (Footprint(cases=20, total=20 * 10, largest=10), 10),  # all alike: as many as there is room for
        (Footprint(cases=500, total=500, largest=10), 41),  # a tenth is large: 4.2 of 41, and three deviations are 5.8
        (Footprint(cases=1000, total=100, largest=10), 80),
        (Footprint(cases=500, total=500, largest=1000), 1),  # one alone is more than there is room for
    ],
)
def test_cases_held_at_once__are_more_where_few_are_large(footprint, fits):
    assert footprint.fit(100, 80) == fits


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_cases_held_at_once__seldom_take_more_than_the_memory(rate):
    draws = np.random.default_rng(0).random((2000, 500)) < rate
    fits = Footprint(cases=1000, total=int(1000 * rate) * 10, largest=10).fit(200, 500)
    assert fits >= 20
    assert (draws[:, :fits].sum(1) * 10 > 200).mean() < 0.02
