"""Seconds that `ci-autotest --help` takes, beside an interpreter that does nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

GOAL_S = 0.2
ROUNDS = 9


def main() -> int:
    ours = _seconds([sys.executable, "-m", "ci_autotest", "--help"])
    bare = _seconds([sys.executable, "-c", "pass"])
    missed = ours > GOAL_S
    print(f"--help {ours:.3f} s (goal {GOAL_S} s), a bare interpreter {bare:.3f} s{'  MISSED' if missed else ''}")
    return int(missed)


def _seconds(command: list[str]) -> float:
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


if __name__ == "__main__":
    sys.exit(main())
