"""``python -m benchmarks.power make [SEED]`` makes the set; ``score seen|aside [CASES]`` runs the suite against it."""

from __future__ import annotations

import sys

import torch

from benchmarks.power.mutants import PATH, generate, load, save
from benchmarks.power.score import report, score
from ci_autotest.record.attempt import Attempts


def main(arguments: list[str]) -> int:
    torch.set_num_threads(1)
    verb, *rest = arguments
    if verb == "make":
        seed = int(rest[0]) if rest else 0
        made = generate(seed)
        save(made, seed)
        operators = {mutant.operator for mutant in made.mutants}
        sys.stdout.write(
            f"{len(made.mutants)} mutants over {len(operators)} operators in {PATH.name}; "
            f"of {made.tried} changes that were tried, {made.equivalent} were not told from torch\n"
        )
        return 0
    half, cases = rest[0], int(rest[1]) if len(rest) > 1 else 20
    mutants = [mutant for mutant in load() if mutant.half == half]
    report(score(mutants, cases, Attempts()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
