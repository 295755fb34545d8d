"""The journal of a soak: a line of JSON for each finished case, and for each comparison that killed its process.

A line is written in one piece. If a killed process left an incomplete line, opening the journal again cuts it off.
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
#: Name in a key if the reference, or the recording, was running.
REFERENCE = "reference"


class Key(NamedTuple):
    """A comparison: a case of a test on one implementation."""

    test: str
    case: int
    name: str


class Journal:
    """The finished cases and the lost comparisons.

    Args:
        path: File of the journal; created if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        """Read the journal.

        Raises:
            SystemExit: The journal belongs to another torch, seed or tree.
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
                sys.exit(f"{path} was begun on other sources than these. Name another journal, or remove it.")
            self._take(record)

    def write(self, record: dict[str, Any]) -> None:
        """Append a record."""
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps(record).encode() + b"\n")
        self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        if "lost" in record:
            self.lost[Key(record["test"], record["case"], record["lost"])] = record
        elif "outcomes" in record:
            self.cases[record["test"], record["case"]] = record

    def is_done(self, test: str, case: int) -> bool:
        """Whether a case needs no process any more: it is finished, or its reference kills the process."""
        return (test, case) in self.cases or Key(test, case, REFERENCE) in self.lost

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the number of comparisons by implementation and outcome, including the lost ones."""
        counts = Counter((name, how) for case in self.cases.values() for name, how in case["outcomes"].items())
        counts.update((key.name, record["how"]) for key, record in self.lost.items())
        return counts

    def accusations(self) -> list[dict[str, Any]]:
        """Return all accusations, in the order in which they were found."""
        found = [item for case in self.cases.values() for item in case["found"] if item["outcome"] == "accused"]
        return found + [_crash(key, record) for key, record in self.lost.items()]


def _crash(key: Key, record: dict[str, Any]) -> dict[str, Any]:
    repeats = "also on its own" if record["again"] else "not on its own"
    return {
        "test": key.test, "case": key.case, "candidate": key.name, "operator": "", "kind": "crash", "blame": "",
        "what": "the process", "detail": f"{record['how']} ({repeats}); {record['stack']}",
    }  # fmt: skip


def _cut(path: Path) -> None:
    """Cut off an incomplete last line."""
    data = path.read_bytes()
    os.truncate(path, data.rfind(b"\n") + 1)


def digest() -> str:
    """Return a digest of the sources that a comparison depends on."""
    found = hashlib.sha256()
    sources = [path for kind in ("*.py", "*.yml") for path in (ROOT / "ci_autotest").rglob(kind)]
    for path in sorted([*sources, *Path(__file__).parent.glob("*.py")]):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]
