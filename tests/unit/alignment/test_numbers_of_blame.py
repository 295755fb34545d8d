"""The numbers of ``alignment/blame`` at their edges: each test fails where its number is 16 times as large or small.

``docs/explanation/blame.md`` says what each is for.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ci_autotest import random_tensor
from ci_autotest import torch as recorded
from ci_autotest.alignment.blame import conditioning, oracle
from ci_autotest.alignment.blame.float64_runs import Float64Runs, widened
from ci_autotest.alignment.blame.reference_error import allowed_by
from ci_autotest.alignment.blame.rounding import Errors, excuse_by_reference
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.values.tolerance import tolerance_for
from tests.engine import record

if TYPE_CHECKING:
    from collections.abc import Callable


def wide(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def errors(greatest: list[float], truth: list[float] | None = None) -> Errors:
    """Return the errors of a candidate in float32; the reference has none, and every element is misaligned."""
    size = len(greatest)
    exact = wide(*(truth or [0.0] * size))
    allowed = torch.full((size,), 1e-5, dtype=torch.float64)
    bad = torch.ones(size, dtype=torch.bool)
    return Errors(wide(*greatest), torch.zeros_like(exact), allowed, bad, exact, torch.float32)


class Question:
    """A question about one tensor of ones, or of what is given, that counts how often it is asked."""

    key = ("value", 0)

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor | None = None) -> None:
        self.function, self.asked = function, []
        self.wider = SimpleNamespace(sources={"x": wide(1.0) if x is None else x}, cotangents={})
        self.live = SimpleNamespace(program=SimpleNamespace(body=(), steps=()))

    def answer(self, sources: dict[str, torch.Tensor], _: Any, run: tuple[Any, ...] = ()) -> torch.Tensor:
        self.asked.append(run[0] if run else "")
        return self.function(sources["x"])

    def rounded(self, *_: Any) -> None:
        return None


@pytest.mark.parametrize(("worst", "is_found", "calls"), [(1023.0, True, 16), (1025.0, False, 2)])
def test_movements__error_far_beyond_them__ends_the_search(worst: float, is_found: bool, calls: int):
    asked = []

    def move(pattern: int, size: float) -> torch.Tensor:
        asked.append(pattern)
        return wide(size)

    found = conditioning._scattered(errors([worst]), move)
    assert (found is not None, len(asked)) == (is_found, calls)


@pytest.mark.parametrize(("edge", "owed"), [(2.0**-8, [4.0]), (2.0**-12, [0.0])])
def test_movements__kink_beyond_the_smaller_ones__is_no_rounding(edge: float, owed: list[float]):
    found = conditioning._scattered(errors([1.0]), lambda _, size: wide(1.0 if size > edge else size))
    assert found.tolist() == owed


@pytest.mark.parametrize(("grain", "is_smooth"), [(2.0**-42, True), (2.0**-37, False)])
def test_steps__result_that_moves_in_grains__is_smooth_if_they_are_short(grain: float, is_smooth: bool):
    question = Question(lambda x: torch.round((x - 1) / grain) * grain + 1)
    owed = conditioning.owed_by_terms(question, errors([1.0], truth=[1.0]))
    assert (float(owed) > 1.5 * 2.0**-24) is is_smooth


def test_directions__greatest_entry__is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "rand", lambda *_, **__: wide(1 - 2.0**-30))
    assert conditioning._pushed(wide(1.0), 2.0**-32, None).tolist() == [1 + 2.0**-12]


@pytest.mark.parametrize(("error", "asked"), [(1.0, 4), (2.0**-24, 16)])
def test_directions__error_far_beyond_the_first__asks_no_more(error: float, asked: int):
    question = Question(lambda x: x * 1.0)
    conditioning.excuse_by_inputs(question, errors([error], truth=[1.0]))
    assert question.asked.count("pushed") == asked


@pytest.mark.parametrize(("roundings", "is_possible"), [(127, True), (129, False)])
def test_directions__few_of_them__may_show_too_little(roundings: int, is_possible: bool):
    first = torch.ones(4, 1, dtype=torch.float64)
    assert conditioning._may_be_rounding(errors([roundings * 2.0**-24]), first) is is_possible


def test_runs_in_float64__more_than_are_kept__are_run_again():
    class Counted(TorchBackend):
        runs = 0

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.runs += 1
            return super().run(*args, **kwargs)

    backend = Counted()
    runs = Float64Runs(backend)
    live, _ = runs.widened(live_of(record(lambda: recorded.exp(random_tensor(1)))), torch.float32)
    for name in (*range(64), *range(64)):
        runs.trace(live, ("n", name), has_backward=False)
    assert backend.runs == 64
    for _ in range(2):
        runs.trace(live, ("n", 64), has_backward=False)
    assert backend.runs == 66


@pytest.mark.parametrize(("elements", "is_asked"), [(4096, True), (4097, False)])
def test_gradcheck__inputs_of_many_elements__is_not_asked(elements: int, is_asked: bool):
    live, _ = widened(live_of(record(lambda: recorded.sin(random_tensor(ndim=1, dim0=elements)))))
    assert bool(oracle.third_opinion(live)) is is_asked


def test_limit__difference_of_infinities__is_asked_with_each_pattern_and_its_reverse():
    question = Question(lambda x: x[:16] - x[16:], torch.full((32,), math.inf, dtype=torch.float64))
    assert oracle._limit_of(question).isnan().all()
    assert len(question.asked) == 8


def test_limit__growth_and_change__are_infinite_or_none():
    found = oracle._tends(wide(1, 1, 1 + 5e-10, 1 + 2e-9), wide(0.5e20, 2e20, 1, 1))
    assert str(found.tolist()) == "[nan, inf, 1.0, nan]"


def test_limit__infinities_of_both_signs__are_two():
    assert oracle._is_same(wide(math.inf, math.inf, 1), wide(-math.inf, math.inf, 1 + 1e-12)).tolist() == [
        False, True, True
    ]  # fmt: skip


@pytest.mark.parametrize(("off", "is_measured"), [(2.0**-13, True), (2.0**-11, False)])
def test_error_of_the_reference__many_roundings__is_measured(off: float, is_measured: bool):
    exact = torch.ones(4, dtype=torch.float64)
    found = allowed_by((exact + off).float(), exact, tolerance_for("float32", strictness="measured"))
    assert (found is not None) is is_measured


@pytest.mark.parametrize(("count", "is_excused"), [(6, True), (7, False)])
def test_error_of_the_reference__in_most_elements__excuses_nothing(count: int, is_excused: bool):
    far = wide(*[1.0] * count, *[0.0] * (8 - count))
    allowed = torch.full((8,), 0.5, dtype=torch.float64)
    found = Errors(far, far, allowed, far > 0, torch.ones(8, dtype=torch.float64), torch.float32)
    assert bool(excuse_by_reference(found)) is is_excused
