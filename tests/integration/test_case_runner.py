"""Batches: how many cases run together."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.kinds import AnyCandidate, CompileCandidate, TorchCandidate
from ci_autotest.run.messages import CasesDone, Discover, Hello, RunCases
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker import case_runner, memory
from ci_autotest.run.worker.dispatch import Dispatcher
from ci_autotest.run.worker.memory import case_bytes, cases_at_once
from tests.engine import record

BODIES = """
from ci_autotest import assume, autotest, every, random, random_tensor, torch

@autotest(profiles=[])
def small():
    return torch.exp(random_tensor(2))

@autotest(profiles=[])
def large():
    return torch.exp(random_tensor(2, 256, 256))

@autotest()
def of_two_dtypes():
    return torch.tanh(torch.mul(random_tensor(dtype=torch.float64), random_tensor(2, 1, 1)))

@autotest(n=1, profiles=[], examples=[{"1": 3}, {"1": 2}])
def with_examples():
    return torch.ones(2).reshape(random(1, 4).to(int), -1)

@autotest(n=1, profiles=[], examples=[{"1": 3}])
def with_an_unsupported_example():
    return random_tensor(1, 3).to_global()

@autotest(profiles=[])
def with_a_grid():
    return torch.sum(torch.ones(2, 3), dim=every(0, 1, 5))

@autotest(profiles=[])
def with_an_assumption():
    dim = every(0, 1, 5)
    assume(dim.value() < 5)
    return torch.sum(torch.ones(2, 3), dim=dim)
"""


TORCH = TorchCandidate(name="torch")
COMPILED = CompileCandidate(name="compiled", options={"backend": "aot_eager"})


def bench_in(folder: Path, send=lambda _: None, candidate: AnyCandidate = TORCH) -> Dispatcher:
    (folder / "bodies.py").write_text(BODIES)
    dispatcher = Dispatcher(ProgressBeacon.create(), send)
    dispatcher.answer(
        Hello(
            root=str(folder), folders=[], seed=0, strictness="tolerance", reference_device="cpu",
            candidates=[candidate], tolerances=[],
        )
    )  # fmt: skip
    return dispatcher


def batches_of(name: str, folder: Path, monkeypatch) -> list[list[int]]:
    dispatcher = bench_in(folder)
    seen = []
    prefetch = dispatcher.worker_context.attempts.prefetch
    monkeypatch.setattr(
        dispatcher.worker_context.attempts,
        "prefetch",
        lambda key, cases: (seen.append(list(cases)), prefetch(key, cases)),
    )
    test = next(test for test in dispatcher.answer(Discover("bodies.py")).tests if test.name == name)
    dispatcher.answer(RunCases(test=test, cases=list(range(100)), candidates=["torch"]))
    return [cases for at, cases in enumerate(seen) if at == 0 or cases != seen[at - 1]]


def test_small_tensors__run_many_at_a_time__but_for_the_first_of_a_test(tmp_path, monkeypatch):
    batches = [range(1), range(1, 33), range(33, 65), range(65, 97), range(97, 100)]
    assert batches_of("small", tmp_path, monkeypatch) == list(map(list, batches))


def test_large_tensors__run_as_few_as_memory_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(case_runner, "_BATCH_BYTES", 6 << 20)
    assert max(len(cases) for cases in batches_of("large", tmp_path, monkeypatch)) == 3


def test_compiled_bodies__batches_are_windows__which_begin_with_callables_made_anew(tmp_path, monkeypatch):
    dispatcher = bench_in(tmp_path, candidate=COMPILED)
    begun, seen = [], []
    monkeypatch.setattr(CompileBackend, "begin_window", lambda _: begun.append(len(seen)))
    prefetch = dispatcher.worker_context.attempts.prefetch
    monkeypatch.setattr(
        dispatcher.worker_context.attempts, "prefetch",
        lambda key, cases: (seen.extend(cases), prefetch(key, cases)),
    )  # fmt: skip
    test = next(test for test in dispatcher.answer(Discover("bodies.py")).tests if test.name == "small")
    dispatcher.answer(RunCases(test=test, cases=list(range(22)), candidates=["compiled"]))
    assert seen == list(range(22))
    assert begun == [0, 1, 10, 20]


@pytest.mark.parametrize("size", [1, 80])
def test_coverage__dtypes_that_depend_on_sizes__are_all_counted_in_any_batch(size, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "BATCH", size)
    parts = []  # on a slow machine there are several
    dispatcher = bench_in(tmp_path, parts.append)
    test = next(test for test in dispatcher.answer(Discover("bodies.py")).tests if test.name == "of_two_dtypes")
    parts.append(dispatcher.answer(RunCases(test=test, cases=list(range(40)), candidates=["torch"])))
    dtypes = {dtype for part in parts for dtype in part.usage["torch"].exercised["torch.tanh"].dtypes}
    assert dtypes == {"float32", "float64"}


def test_batches_in_flight__share_the_memory_of_one(tmp_path):
    work = bench_in(tmp_path)._case_runner
    eighth = case_runner._BATCH_BYTES // 8
    work._overwritten["t"], work._largest["t"] = frozenset(), eighth
    assert [work._cases_at_once("t", ahead) for ahead in (0, 1)] == [8, 4]


def test_memory_of_a_case__is_that_of_two_sides_with_their_gradients():
    attempt = record(lambda: torch.exp(random_tensor(1)))
    assert case_bytes(attempt.trace.values) == 4 * 4 * 2 * attempt.trace.values[0].numel()


@pytest.mark.parametrize(
    ("largest", "room", "expected"),
    [(0, 100, 32), (10, 100, 10), (1, 100, 32), (1000, 100, 1)],
    ids=["nothing is known", "room for ten", "room for more than run together", "one is more than there is room for"],
)
def test_cases_at_once__goes_by_the_largest(largest, room, expected):
    assert cases_at_once(largest, room) == expected


NOTES = {
    "with_examples": [
        "examples[0] has no values to compare, because the reference rejects it: reshape: RuntimeError: "
    ],
    "with_an_unsupported_example": [],
    "with_a_grid": [
        "grid point 3 of 3 (5) has no values to compare, because the reference rejects it: torch.sum: IndexError: "
    ],
    "with_an_assumption": [],
}


def done_in(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> CasesDone:
    monkeypatch.chdir(folder)  # a worker runs in its root
    dispatcher = bench_in(folder)
    test = next(test for test in dispatcher.answer(Discover("bodies.py")).tests if test.name == name)
    return dispatcher.answer(RunCases(test=test, cases=[0, 1, 2], candidates=["torch"]))


@pytest.mark.parametrize("name", NOTES)
def test_notes__case_that_the_author_wrote_down__are_of_those_that_the_reference_rejects(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    notes = done_in(tmp_path, name, monkeypatch).notes
    assert [note[: len(text)] for note, text in zip(notes, NOTES[name], strict=True)] == NOTES[name]


def test_ordinary_rejected__point_of_a_grid__is_one_input_however_often_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    done = done_in(tmp_path, "with_a_grid", monkeypatch)
    assert (done.test.ordinary_accepted, done.test.ordinary_rejected, done.test.rejected, done.test.empty) == (
        2,
        1,
        20,
        1,
    )
