"""``python -m benchmarks.soak [FIRST COUNT [JOURNAL]]``: run chunk after chunk, each past a comparison that kills it.

This process imports no framework. The status is 1 if there is an accusation that no row of ``read.yml`` explains, or an
implementation without a single comparison.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.soak.journal import ROOT, Journal, Key
from benchmarks.soak.reading import read, rows

CASES = 64
#: Outcomes of a case that was not compared.
UNCOMPARED = {"unsupported", "not_run"}
CHUNKS = "benchmarks.soak.chunk"
#: Signals that somebody else sent: they say nothing about a comparison.
FROM_OUTSIDE = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
#: Cases of every test that one process runs.
CHUNK = 8


class Death(NamedTuple):
    """Death of a process: its comparison, how it died, and Python's stack."""

    key: Key
    how: str
    stack: str


def run_chunk(module: str, arguments: list[str]) -> Death | None:
    """Run a chunk in a process; return how it died, or ``None`` if it exited normally.

    Raises:
        SystemExit: It failed in no comparison that could be left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        place, errors = Path(folder) / "place", Path(folder) / "errors"
        with errors.open("w") as log:
            command = [sys.executable, "-W", "ignore", "-m", module, str(place), *arguments]
            status = subprocess.run(command, cwd=ROOT, stderr=log, check=False).returncode
        if status == 0:
            return None
        text, current = errors.read_text(errors="replace"), place.read_text() if place.exists() else ""
    if -status in FROM_OUTSIDE:
        sys.exit("a chunk was ended from outside. Run the same command again: it continues with the remaining cases.")
    if status > 0 or not current:
        sys.exit(f"a chunk ended with status {status}:\n{text}")
    how = "timed out" if status == -signal.SIGALRM else signal.Signals(-status).name
    return Death(Key(*json.loads(current)), how, stack_of(text))


def stack_of(text: str) -> str:
    """Return the three innermost frames of a stack that Python's fault handler printed."""
    frames = re.findall(r'File "(?:.*/)?([^/"]+)", line (\d+) in (\S+)', text)
    return ", ".join(f"{file}:{number} {name}" for file, number, name in frames[:3])


def go_on(path: Path, first: int, count: int, module: str = CHUNKS) -> None:
    """Run a chunk to its end, leaving out each comparison that kills its process.

    Raises:
        SystemExit: A comparison killed a process although it was left out.
    """
    while (death := run_chunk(module, [str(path), str(first), str(count)])) is not None:
        journal = Journal(path)
        if death.key in journal.lost:
            sys.exit(f"{death.key} killed a process although it was left out.")
        test, case, name = death.key
        again = run_chunk(module, [str(path), str(case), "1", json.dumps(death.key)]) is not None
        journal.write(
            {"test": test, "case": case, "lost": name, "how": death.how, "stack": death.stack, "again": again}
        )
        print(f"  {test}, case {case}, {name}: {death.how}{', also on its own' if again else ''}", flush=True)


def main(words: list[str]) -> int:
    """Run the cases that the journal lacks, and print the results."""
    first, count = (int(words[0]), int(words[1])) if words else (0, CASES)
    path = Path(words[2] if len(words) > 2 else "soak.jsonl").resolve()
    for begin in range(first, first + count, CHUNK):
        begun, end = time.perf_counter(), min(begin + CHUNK, first + count)
        go_on(path, begin, end - begin)
        print(f"cases {begin} to {end - 1}: {time.perf_counter() - begun:.0f} s", flush=True)
    journal = Journal(path)
    print_counts(journal.counts())
    return max(print_accused(journal), print_uncompared(journal))


def print_counts(counts: Counter[tuple[str, str]]) -> None:
    """Print the number of comparisons by implementation and outcome."""
    names = sorted({name for name, _ in counts})
    outcomes = sorted({how for _, how in counts})
    print(f"\n{counts.total():,} comparisons\n\n| | {' | '.join(outcomes)} |" + "\n|---" + "|---" * len(outcomes) + "|")
    for name in names:
        print(f"| {name} | " + " | ".join(f"{counts[name, how]:,}" for how in outcomes) + " |")


def print_uncompared(journal: Journal) -> int:
    """Print what was not compared; return 1 if there is an implementation without a single comparison."""
    counts, made = journal.counts(), Counter[str]()
    for (name, how), count in counts.items():
        made[name] += 0 if how in UNCOMPARED else count
    rejected = sum(case["profile"] == "rejected" for case in journal.cases.values())
    silent = sorted(name for name, count in made.items() if not count)
    left_out = counts.total() - made.total()
    print(f"\nThe reference rejected {rejected} cases; {left_out} comparisons were not made.")
    if silent or not made:
        print(f"NOTHING was compared for {', '.join(silent) or 'any implementation'}")
    return int(bool(silent) or not made)


def print_accused(journal: Journal) -> int:
    """Print the accusations by the row that explains them; return 1 if a row is missing."""
    counts: Counter[str] = Counter()
    unread = []
    known = rows()
    for item in journal.accusations():
        row = read(item, known)
        if row is None:
            unread.append(item)
        else:
            counts[row.what] += 1
    print("\n| accusation | how often | cause |\n|---|---|---|")
    for row in known:
        print(f"| {row.what} | {counts[row.what]} | {row.verdict} |")
    print(f"\n{len(unread)} accusations that no row of read.yml explains:")
    for item in unread:
        fields = (item["candidate"], item["test"], item["case"], item["operator"], item["kind"], item["what"])
        print("  " + " | ".join(str(part) for part in fields) + f" | {item['detail'][:120]}")
    return int(bool(unread))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
