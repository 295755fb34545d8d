"""Cost of comparing an equal pair of tensors with metadata, in microseconds."""

from __future__ import annotations

import statistics
import sys
import timeit

import torch

from ci_autotest.alignment.fast_path import _is_same_small, tensors_aligned
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.program.ir import OUTPUT, Program, Step

#: Microseconds that comparing an equal pair of float32 tensors may take, by the number of elements.
GOALS = {100: 1.5, 10_000: 3.0, 1_000_000: 150.0}
ROUNDS = 15


def main() -> int:
    torch.set_num_threads(1)
    rules, program = Rules(), Program((), (Step(OUTPUT, "output", ()),))
    missed = 0
    print("elements     us   goal us   torch.equal us")
    for count, goal in GOALS.items():
        left = torch.randn(count)
        right = left.clone()
        number = max(20, 200_000 // count)
        ours = _us(lambda: _pair(left, right, program, rules), number)
        plain = _us(lambda: torch.equal(left, right), number)
        missed += ours > goal
        print(f"{count:>9,}  {ours:6.2f}  {goal:7.1f}   {plain:8.2f}{'  MISSED' if ours > goal else ''}")
    wrong = left.clone()
    wrong[-1] += 1
    assert not _pair(wrong, right, program, rules), "the measured comparison accepts a wrong pair"
    return missed


def _pair(left: torch.Tensor, right: torch.Tensor, program: Program, rules: Rules) -> bool:
    """Compare as a run does: flags, version, dtype, shape, and elements in the way that suits their number."""
    facts = (left.requires_grad, left.is_leaf, left._version)
    same = (right.requires_grad, right.is_leaf, right._version) == facts
    return same and (_is_same_small(left, right) or tensors_aligned(left, right, program.steps, rules))


def _us(call, number: int) -> float:
    call()
    return statistics.median(timeit.repeat(call, number=number, repeat=ROUNDS)) / number * 1e6


if __name__ == "__main__":
    sys.exit(main())
