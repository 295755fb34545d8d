"""A chunk of a soak, in a process of its own: ``python -m benchmarks.soak.chunk PLACE JOURNAL FIRST COUNT [ONE]``.

Before each comparison it writes its key to the file PLACE, which the parent reads if the process dies. ``ONE`` is a
single comparison (JSON of test, case and name) to run instead; its result is not recorded.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.soak.implementations import EVERY, FORWARD, IMPLEMENTATIONS
from benchmarks.soak.journal import REFERENCE, SEED, Journal, Key
from ci_autotest.alignment.cases import Contender, accept, differentiate, try_case
from ci_autotest.alignment.examination import TrialSides
from ci_autotest.alignment.fast_path import is_surely_aligned
from ci_autotest.alignment.probe import probe_of
from ci_autotest.alignment.stateful import alone, suspicion
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.alignment.verdict import judge_program, live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.discovery import families
from ci_autotest.record.attempt import Attempts
from ci_autotest.run.worker.tests import Library
from ci_autotest.values.case import test_key
from ci_autotest.values.finding import TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Callable

#: Time limit of a comparison in seconds. The longest takes two.
LIMIT_S = 120
#: One of this many cases also calls its body several times.
PROBED = 10


class ProgressBeacon:
    """A file with the key of the current comparison, for the case that the process dies.

    Args:
        path: The file; it is overwritten.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

    def enter(self, key: Key) -> None:
        """Write the key of a comparison, and start its time limit."""
        signal.alarm(LIMIT_S)
        os.pwrite(self._fd, json.dumps(key).encode().ljust(512), 0)


class Soak:
    """All implementations and tests of a soak.

    Args:
        place: Receives the key of each comparison.
        lost: Comparisons that killed a process and are left out.
    """

    def __init__(self, place: ProgressBeacon, lost: frozenset[Key] = frozenset()) -> None:
        self.place, self.lost = place, lost
        self.library, self.attempts, self.reference = Library(Path.cwd()), Attempts(), TorchBackend()
        self.implementations = {name: make() for name, make in IMPLEMENTATIONS.items()}
        self.tests = [test for family in families() for test in self.library.tests(f"builtin:suite/{family}")]

    def compare(self, test, case, names):
        """Compare a case; return its line: the outcome by implementation, and every difference."""
        self.place.enter(Key(test.id, case, REFERENCE))
        declaration, call = self.library.find(test)
        rules = rules_for((), "tolerance", "soak", declaration)
        key = test_key(SEED, test.id)
        accepted = accept(
            case, lambda k, n: self.attempts.attempt(declaration, call, (key, test.id, k, n)), {}, lambda *_: None
        )
        record = {"test": test.id, "case": case, "profile": "rejected", "outcomes": {}, "found": []}
        attempt = accepted.attempt
        if attempt is None:
            return record
        record["profile"] = attempt.profile
        for name in names:
            if name in FORWARD:
                self.compare_one(attempt._replace(cotangents={}), name, rules, record)
        self.place.enter(Key(test.id, case, REFERENCE))
        differentiate(attempt, self.reference)
        for name in names:
            if name not in FORWARD:
                self.compare_one(attempt, name, rules, record)
        if case % PROBED == 1:
            self.probe(attempt, [name for name in names if record["outcomes"].get(name) == "aligned"], rules, record)
        return record

    def probe(self, attempt, names, rules, record):
        """Call the body of a case several times, on the implementations that are aligned in it."""
        probe = probe_of(attempt, self.reference, lambda _: None)
        for name in names if not isinstance(probe, str) else ():
            key = Key(record["test"], record["case"], name)
            if key in self.lost or not self.implementations[name].shows_steps:
                continue
            self.place.enter(key)
            trace = self.implementations[name].run(probe.program, probe.sources, copied=probe.trace.copies)
            if is_surely_aligned(probe.program, trace, probe.trace, rules):
                continue
            try:
                verdict = suspicion(probe, trace, rules)
            except RuntimeError:  # A part of a split input cannot be read after the input was written to.
                continue
            if verdict is None:
                continue
            # A run would repeat the call alone in a fresh process. These implementations keep no state.
            sides = TrialSides(self.implementations[name], self.reference, rules)
            single = judge_program(alone(live_of(probe), verdict, self.reference), sides).verdict
            if single.kind is None and single.outcome == "aligned":
                record["outcomes"][name] = "accused"
                record["found"].append(line(key, attempt.profile, verdict, "accused"))

    def compare_one(self, attempt, name, rules, record):
        """Compare one implementation with the reference, and record the result."""
        key = Key(record["test"], record["case"], name)
        if key in self.lost:
            return
        self.place.enter(key)
        verdict = try_case(attempt, Contender(self.implementations[name], rules), self.reference).verdict
        accused = verdict.outcome == "misaligned" and verdict.blame not in TOLERATED_BLAMES
        outcome = "accused" if accused else verdict.outcome if verdict.kind is None else verdict.blame
        record["outcomes"][name] = outcome
        if verdict.kind is not None:
            record["found"].append(line(key, attempt.profile, verdict, outcome))


def line(key, profile, verdict, outcome):
    found = verdict.misalignment
    return {
        "test": key.test, "case": key.case, "candidate": key.name, "profile": profile, "outcome": outcome,
        "operator": verdict.operator, "kind": verdict.kind, "blame": verdict.blame, "oracle": verdict.oracle,
        "what": found.what, "detail": found.detail[:300], "ours": found.candidate, "theirs": found.reference,
        "pair": list(found.difference.first_pair_decimal) if found.difference else None,
    }  # fmt: skip


def names_for(case):
    return [name for name in IMPLEMENTATIONS if not case % EVERY.get(name, 1)]


def main(words: list[str], make: Callable[..., Soak] = Soak) -> int:
    """Run a chunk, or a single comparison."""
    faulthandler.enable()
    torch.set_num_threads(1)
    place, first, count = ProgressBeacon(Path(words[0])), int(words[2]), int(words[3])
    if len(words) > 4:
        one = Key(*json.loads(words[4]))
        soak = make(place)
        test = next(test for test in soak.tests if test.id == one.test)
        soak.compare(test, one.case, [] if one.name == REFERENCE else [one.name])
        return 0
    journal = Journal(Path(words[1]))
    soak = make(place, frozenset(journal.lost))
    for test in soak.tests:
        for case in range(first, first + count):
            if not journal.is_done(test.id, case):
                journal.write(soak.compare(test, case, names_for(case)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
