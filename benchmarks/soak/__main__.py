"""``python -m benchmarks.soak [FIRST COUNT [JOURNAL]]``: chunk after chunk, and behind what ends a process.

Imports no framework. The status is 1 where something is accused that no row of ``read.yml`` explains, or where of an
implementation nothing was compared.
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
#: Outcomes of a case that say nothing.
UNCOMPARED = {"unsupported", "not_run"}
CHUNKS = "benchmarks.soak.chunk"
#: Signals that say nothing of a comparison.
FROM_OUTSIDE = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
#: Cases of every test that one process runs.
CHUNK = 8


class Death(NamedTuple):
    """How a process ended that was not to end: what it was doing, by what, and Python's stack."""

    key: Key
    how: str
    stack: str


def ran(module: str, arguments: list[str]) -> Death | None:
    """Run a chunk in a process; return how it died, ``None`` where it came to its end.

    Raises:
        SystemExit: It ended without a comparison that could be left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        place, errors = Path(folder) / "place", Path(folder) / "errors"
        with errors.open("w") as told:
            command = [sys.executable, "-W", "ignore", "-m", module, str(place), *arguments]
            status = subprocess.run(command, cwd=ROOT, stderr=told, check=False).returncode
        if status == 0:
            return None
        said, where = errors.read_text(errors="replace"), place.read_text() if place.exists() else ""
    if -status in FROM_OUTSIDE:
        sys.exit("a chunk was ended from outside: the same command goes on with what is left.")
    if status > 0 or not where:
        sys.exit(f"a chunk ended with status {status}:\n{said}")
    how = "timed out" if status == -signal.SIGALRM else signal.Signals(-status).name
    return Death(Key(*json.loads(where)), how, stack_of(said))


def stack_of(said: str) -> str:
    """Return the three innermost places of Python's stack as its fault handler tells it."""
    frames = re.findall(r'File "(?:.*/)?([^/"]+)", line (\d+) in (\S+)', said)
    return ", ".join(f"{file}:{number} {name}" for file, number, name in frames[:3])


def go_on(path: Path, first: int, count: int, module: str = CHUNKS) -> None:
    """Run a chunk to its end, leaving out what ends the process.

    Raises:
        SystemExit: What was left out ended a process all the same.
    """
    while (death := ran(module, [str(path), str(first), str(count)])) is not None:
        journal = Journal(path)
        if death.key in journal.lost:
            sys.exit(f"{death.key} ended a process although it was left out.")
        test, case, name = death.key
        again = ran(module, [str(path), str(case), "1", json.dumps(death.key)]) is not None
        journal.write(
            {"test": test, "case": case, "lost": name, "how": death.how, "stack": death.stack, "again": again}
        )
        print(f"  {test}, case {case}, {name}: {death.how}{', again alone' if again else ''}", flush=True)


def main(words: list[str]) -> int:
    """Run what the journal does not have yet, and print what it says."""
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
    """Print how many comparisons of each implementation came to which outcome."""
    names = sorted({name for name, _ in counts})
    outcomes = sorted({how for _, how in counts})
    print(f"\n{counts.total():,} comparisons\n\n| | {' | '.join(outcomes)} |" + "\n|---" + "|---" * len(outcomes) + "|")
    for name in names:
        print(f"| {name} | " + " | ".join(f"{counts[name, how]:,}" for how in outcomes) + " |")


def print_uncompared(journal: Journal) -> int:
    """Print what was not compared; return 1 where of an implementation nothing was."""
    counts, made = journal.counts(), Counter[str]()
    for (name, how), count in counts.items():
        made[name] += 0 if how in UNCOMPARED else count
    rejected = sum(case["profile"] == "rejected" for case in journal.cases.values())
    silent = sorted(name for name, count in made.items() if not count)
    left_out = counts.total() - made.total()
    print(f"\n{rejected} cases were rejected by the reference, {left_out} comparisons not made.")
    if silent or not made:
        print(f"NOTHING was compared of {', '.join(silent) or 'any implementation'}")
    return int(bool(silent) or not made)


def print_accused(journal: Journal) -> int:
    """Print what was accused, by the row that explains it; return 1 where none does."""
    counts: Counter[str] = Counter()
    unread = []
    known = rows()
    for item in journal.accusations():
        row = read(item, known)
        if row is None:
            unread.append(item)
        else:
            counts[row.what] += 1
    print("\n| what was accused | how often | what it is |\n|---|---|---|")
    for row in known:
        print(f"| {row.what} | {counts[row.what]} | {row.verdict} |")
    print(f"\n{len(unread)} accusations that nobody has read:")
    for item in unread:
        told = (item["candidate"], item["test"], item["case"], item["operator"], item["kind"], item["what"])
        print("  " + " | ".join(str(part) for part in told) + f" | {item['detail'][:120]}")
    return int(bool(unread))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
