"""The journal of a soak: a line of JSON for each finished case, and for each comparison that ended its process.

A line is written in one piece; what a killed process left of one is cut off when the journal is opened again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261120
#: What the reference itself is called where it, or the recording, ended the process.
REFERENCE = "reference"


class Key(NamedTuple):
    """A comparison: a case of a test on one implementation."""

    test: str
    case: int
    name: str


class Journal:
    """Hold what is done.

    Args:
        path: Made where it is not there.
    """

    def __init__(self, path: Path) -> None:
        """Read what is there; refuse a journal of other sources.

        Raises:
            SystemExit: The journal is of another torch, seed or tree.
        """
        self.path = path
        self.cases: dict[tuple[str, int], dict[str, Any]] = {}
        self.lost: dict[Key, dict[str, Any]] = {}
        head = {"seed": SEED, "sources": digest(), "python": sys.version.split()[0], "torch": version("torch")}
        if path.exists():
            _cut(path)
        lines = path.read_text().splitlines() if path.exists() else []
        if not lines:
            self.write({"head": head})
        for number, line in enumerate(lines):
            record = json.loads(line)
            if number == 0 and record.get("head") != head:
                sys.exit(f"{path} was begun on other sources than these: name another journal, or remove it.")
            self._take(record)

    def write(self, record: dict[str, Any]) -> None:
        """Add a line, and hold what it says."""
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps(record).encode() + b"\n")
        self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        if "lost" in record:
            self.lost[Key(record["test"], record["case"], record["lost"])] = record
        elif "outcomes" in record:
            self.cases[record["test"], record["case"]] = record

    def is_done(self, test: str, case: int) -> bool:
        """Whether a case needs no process any more: finished, or its reference ends one."""
        return (test, case) in self.cases or Key(test, case, REFERENCE) in self.lost

    def counts(self) -> Counter[tuple[str, str]]:
        """Return how many comparisons each implementation has of each outcome, the lost ones included."""
        counts = Counter((name, how) for case in self.cases.values() for name, how in case["outcomes"].items())
        counts.update((key.name, record["how"]) for key, record in self.lost.items())
        return counts

    def accusations(self) -> list[dict[str, Any]]:
        """Return everything that an implementation is accused of, in the order found."""
        found = [item for case in self.cases.values() for item in case["found"] if item["outcome"] == "accused"]
        return found + [_told(key, record) for key, record in self.lost.items()]


def _told(key: Key, record: dict[str, Any]) -> dict[str, Any]:
    repeats = "again alone" if record["again"] else "not again alone"
    return {
        "test": key.test, "case": key.case, "candidate": key.name, "operator": "", "kind": "crash", "blame": "",
        "what": "the process", "detail": f"{record['how']} ({repeats}); {record['stack']}",
    }  # fmt: skip


def _cut(path: Path) -> None:
    """Cut off a line that was not finished."""
    data = path.read_bytes()
    os.truncate(path, data.rfind(b"\n") + 1)


def digest() -> str:
    """Return a digest of the sources that decide what a comparison says."""
    found = hashlib.sha256()
    sources = [path for kind in ("*.py", "*.yml") for path in (ROOT / "ci_autotest").rglob(kind)]
    for path in sorted([*sources, *Path(__file__).parent.glob("*.py")]):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]
