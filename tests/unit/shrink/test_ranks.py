"""The passes over ranks: their exact minimum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec
from ci_autotest.program.recording import Recording
from ci_autotest.shrink.ranks import simpler_ranks

if TYPE_CHECKING:
    from collections.abc import Callable


def _recording(*distributions: Distribution) -> Recording:
    spec = TensorSpec("float32", (6, 5), (5, 1), 0, 30)
    placed = [
        Step(PLACEHOLDER, f"t{number}", (replace(spec, distribution=on),)) for number, on in enumerate(distributions)
    ]
    added = Step(CALL_FUNCTION, "torch.add", tuple(Ref(number) for number in range(len(placed))))
    return Recording(Program((), (*placed, added, Step(OUTPUT, "output", (Ref(len(placed)),)))), {})


def _shown(recording: Recording) -> list[str]:
    specs = [step.args[0] for step in recording.program.steps if step.op == PLACEHOLDER]
    return [f"{spec.distribution.mesh} {spec.distribution}" for spec in specs]


def _smallest(recording: Recording, is_shown: Callable[[list[str]], bool]) -> list[str]:
    best = [recording]
    for proposal in simpler_ranks(lambda: best[0]):
        if is_shown(_shown(proposal)):
            best[0] = proposal
    return _shown(best[0])


@pytest.mark.parametrize(
    ("is_shown", "expected"),
    [
        (lambda _: True, ["(2,) Replicate", "(2,) Replicate"]),
        (lambda shown: "Shard" in shown[0], ["(2,) Shard(0)", "(2,) Replicate"]),
        (lambda shown: "Partial" in shown[1], ["(2,) Replicate", "(2,) Partial"]),
        (lambda shown: shown[0].startswith(("(3,)", "(4,)", "(2, 2)")), ["(3,) Replicate", "(3,) Replicate"]),
        (lambda shown: shown[0].startswith("(2, 2)"), ["(2, 2) Replicate, Replicate", "(2, 2) Replicate, Replicate"]),
    ],
    ids=["always", "cut", "partial", "three", "two dimensions"],
)
def test_simpler_ranks__what_is_needed__is_all_that_stays(is_shown, expected):
    recording = _recording(
        Distribution((2, 2), ("Shard(1)", "Replicate")), Distribution((2, 2), ("Partial", "Shard(0)"))
    )

    assert _smallest(recording, is_shown) == expected


def test_simpler_ranks__no_ranks__proposes_nothing():
    plain = Recording(Program((), (Step(OUTPUT, "output", ()),)), {})

    assert list(simpler_ranks(lambda: plain)) == []
