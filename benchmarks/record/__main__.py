"""``python -m benchmarks.record [CASES] [SEED]``: which bugs of record the shipped suite finds, or why it does not."""

from __future__ import annotations

import sys
from typing import get_args

import torch

from benchmarks.record.bugs import Part, bugs
from benchmarks.record.reasons import reason_of
from benchmarks.record.score import Found, score
from ci_autotest.record.attempt import Attempts


def main(arguments: list[str]) -> int:
    torch.set_num_threads(1)
    cases, seed = (int(arguments[at]) if len(arguments) > at else default for at, default in ((0, 20), (1, 0)))
    report(score(bugs(), cases, seed, Attempts()))
    return 0


def report(results: list[Found]) -> None:
    """Print a line for each bug, and how many are found."""
    for result in results:
        bug = result.bug
        line = f"{bug.name:38} {bug.tracker}#{bug.number}  {bug.operator.rpartition('.')[2]}: "
        if result.case:
            named = "" if result.is_right else f", under {result.operator}"
            line += f"found by {result.case}, {result.profile}, {result.kind}{named}"
        else:
            line += f"missed in {result.called} cases: {reason_of(bug.name)}"
        sys.stdout.write(f"{line}\n")
    for part in get_args(Part):
        summed(part, [result for result in results if result.bug.part == part])


def summed(part: str, results: list[Found]) -> None:
    """Print how many bugs of a part are found."""
    found = [result for result in results if result.case]
    sys.stdout.write(
        f"{part}: {len(found)} of {len(results)} bugs found ({100 * len(found) / max(len(results), 1):.1f} %), "
        f"{sum(result.is_right for result in found)} of them under the right operator\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
