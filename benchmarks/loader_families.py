"""What is found of each family of data loaders, and the CPU seconds that it takes, as a table.

``python -m benchmarks.loader_families [--developed] [NAME ...]``; SEEDS is the number of members of each family.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import tempfile
from pathlib import Path

from ci_autotest.errors import AutotestError
from tests.loader_families import FAMILIES, KEPT_ASIDE, judged, shortcomings


def score(names: list[str]) -> None:
    for name in names or FAMILIES:
        if "--developed" in sys.argv and name in KEPT_ASIDE:
            continue
        for seed in range(int(os.environ.get("SEEDS", "1"))):
            member = FAMILIES[name](random.Random(f"{name} {seed}"))  # noqa: S311 - a seeded sample
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    lacks = shortcomings(member, judged(member, Path(folder)))
                except AutotestError as error:
                    lacks = [f"{error} {getattr(error, 'output', '')[-600:]}"]
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            verdict = "; ".join(lacks) or ("found" if member.pattern else "quiet")
            print(f"| {name} | {seed} | {verdict} | {cpu_s:.1f} |", flush=True)


if __name__ == "__main__":
    score([name for name in sys.argv[1:] if not name.startswith("--")])
