"""Tallies add up to the same, in any order and however the cases are split."""

from __future__ import annotations

import random
from functools import reduce
from operator import add as plus
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ci_autotest.commands.run_result import Circumstances, make_result
from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.errors import UnsupportedReason
from ci_autotest.report.merge import merge
from ci_autotest.run.messages import CasesDone
from ci_autotest.values import tally
from ci_autotest.values.aligned_error import AlignedError
from ci_autotest.values.coverage_values import Exercised
from ci_autotest.values.probes import NO_PROBE, ProbeCounts
from ci_autotest.values.result import UnsupportedCases
from ci_autotest.values.size_classes import CLASSES
from tests import report_samples as samples
from tests.verdict_samples import FIRST, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATORS = ("torch.exp", "torch.add", "torch.sum")
WINDOWS = 12


def some(drawn: random.Random, names: Sequence[Any]) -> list[Any]:
    return drawn.sample(names, drawn.randint(0, len(names)))


def seconds(drawn: random.Random) -> float:
    return drawn.randint(0, 32) / 8  # Sums of these are exact in any order.


def cost(drawn: random.Random) -> tally.Cost:
    numbers = {name: drawn.randint(0, 9) for name in ("cases", "watched", "kept_bytes")}
    times = {name: seconds(drawn) for name in ("candidate_s", "reference_s")}
    return tally.Cost(**numbers, **times, drawn=drawn.choice(("", "nothing", "otherwise")))


def test_tally(drawn: random.Random) -> tally.TestTally:
    numbers = ("accepted", "rejected", "empty", "undefined", "outside", "skipped")
    # Near one in ten, of which a test with fewer is weak.
    rare = {"ordinary_accepted": drawn.randint(0, 1), "ordinary_rejected": drawn.randint(3, 6)}
    return tally.TestTally(
        **{name: drawn.randint(0, 9) for name in numbers}, **rare, duration_s=seconds(drawn),
        refusal=drawn.choice(("", "no", "never")), skip_reason=drawn.choice(("", "here", "there")),
        profiles={name: drawn.randint(1, 5) for name in some(drawn, ("ordinary", "empty", "special"))},
        unfit={name: drawn.choice(("bounds", "dtype")) for name in some(drawn, ("empty", "special", "layout"))},
        sizes={
            dimension: {one: drawn.choice(("reached", "range", "few_cases")) for one in CLASSES}
            for dimension in some(drawn, ("2.dim0", "10.dim0"))
        },
    )  # fmt: skip


test_tally.__test__ = False  # type: ignore[attr-defined] - a maker, not a test


def error(drawn: random.Random, operator: str) -> AlignedError:
    return AlignedError(
        operator=operator, dtype=drawn.choice(("float32", "float16")), cases=drawn.randint(1, 9), absolute=drawn.random(),
        relative=drawn.random(), ulp=drawn.choice((None, 3, 5)), used=drawn.choice((None, 0.25, 0.5)),
    )  # fmt: skip


def pair_tally(drawn: random.Random) -> tally.PairTally:
    return tally.PairTally(
        aligned=drawn.randint(0, 9), values_only=drawn.randint(0, 9), cost=cost(drawn),
        unsupported=tuple(
            UnsupportedCases(reason=reason, cases=drawn.randint(1, 9), details=tuple(sorted(some(drawn, "abcde"))[:3]))
            for reason in some(drawn, list(UnsupportedReason)[:3])
        ),
        errors=tuple(error(drawn, operator) for operator in some(drawn, OPERATORS)),
        compile_s=seconds(drawn),
        probes=ProbeCounts(planned=drawn.randint(0, 3), run=drawn.randint(0, 3), left_out={drawn.choice(NO_PROBE): 1}),
    )  # fmt: skip


def usage_tally(drawn: random.Random) -> tally.UsageTally:
    return tally.UsageTally(
        calls={name: drawn.randint(1, 9) for name in some(drawn, OPERATORS)}, probed=tuple(sorted(some(drawn, OPERATORS))),
        left_out=tuple(sorted(some(drawn, ("weight", "bias")))),
        exercised={
            name: Exercised(cases=drawn.randint(1, 9), aligned=drawn.randint(0, 9), dtypes=tuple(sorted(some(drawn, ("a", "b")))))
            for name in some(drawn, OPERATORS)
        },
    )  # fmt: skip


MAKERS = {"cost": cost, "test": test_tally, "pair": pair_tally, "usage": usage_tally}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", MAKERS)
def test_add__parts_in_any_order_and_grouping__are_one_sum(kind: str, seed: int):
    drawn = random.Random(seed)  # noqa: S311 - tallies
    parts = [MAKERS[kind](drawn) for _ in range(6)]
    whole = reduce(plus, parts)
    drawn.shuffle(parts)
    assert reduce(plus, parts) == whole
    assert reduce(plus, parts[:2]) + (reduce(plus, parts[2:4]) + reduce(plus, parts[4:])) == whole
    assert type(whole)() + whole == whole + type(whole)() == whole
    assert msgspec.json.decode(msgspec.json.encode(whole), type=type(whole)) == whole


def windows(drawn: random.Random) -> list[tuple[str, CasesDone]]:
    """Return what workers say of the windows of two tests, in each of which some cases are aligned and some are not."""
    found = []
    for number in range(WINDOWS):
        cases = [*range(10 * number + 1, 10 * number + 11)]
        aligned = drawn.randint(0, 8)
        unsupported = UnsupportedCases(reason=UnsupportedReason.NO_KERNEL, cases=8 - aligned, details=(f"d{number}",))
        pair = msgspec.structs.replace(
            pair_tally(drawn), aligned=aligned, unsupported=(unsupported,) if aligned < 8 else (),
            probes=ProbeCounts(planned=1, run=1),
        )  # fmt: skip
        test = msgspec.structs.replace(test_tally(drawn), empty=1, skipped=1)
        # Whatever is compared was recorded.
        recorded = tally.UsageTally(exercised={name: Exercised(cases=10, aligned=10) for name in OPERATORS})
        usage = {"": recorded, "kernels": usage_tally(drawn)}
        for info in (FIRST, SECOND):
            found.append((info.id, CasesDone(done=cases, test=test, pairs={"kernels": pair}, usage=usage, last=True)))
    return found


def result_of(parts: Sequence[tuple[str, CasesDone]], shard: tuple[int, int]):
    planned = {
        info.id: [case for test, done in parts if test == info.id for case in done.done] for info in (FIRST, SECOND)
    }
    ledger = Ledger([(info, planned[info.id]) for info in (FIRST, SECOND)], ("kernels",))
    for test, done in parts:
        ledger.part(test, done)
    whole = samples.run()
    details = Circumstances(
        seed=0, environment=whole.environment, candidates=(samples.KERNELS,), shard=shard, shapes=0, interrupted=False,
        notes=(), broken=(), baseline=None, fail_on="misaligned", is_partial=False, duration_s=1.0, plan="p",
    )  # fmt: skip
    return make_result(ledger, (), details)


@pytest.mark.parametrize("seed", range(10))
def test_make_result__one_worker_many_workers_and_shards__are_the_same_run(seed: int):
    drawn = random.Random(seed)  # noqa: S311 - orders
    parts = windows(drawn)
    whole = result_of(parts, (1, 1))
    assert {item.outcome for item in whole.results} <= {"aligned", "unsupported"}

    drawn.shuffle(parts)
    assert result_of(parts, (1, 1)) == whole
    count = drawn.randint(2, 5)
    shards = [result_of(parts[index::count], (index + 1, count)) for index in range(count)]
    drawn.shuffle(shards)
    merged = merge(shards)
    assert msgspec.structs.replace(merged, plan="p", fail_on=whole.fail_on, exit_code=whole.exit_code) == whole
