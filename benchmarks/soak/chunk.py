"""A chunk of a soak, in a process of its own: ``python -m benchmarks.soak.chunk PLACE JOURNAL FIRST COUNT [ONE]``.

Before each comparison it writes to the file PLACE what it enters, for whoever finds it dead. ``ONE`` is a comparison
(JSON of test, case and name) that is made alone, and written down nowhere.
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
from ci_autotest.alignment.fast_path import is_surely_aligned
from ci_autotest.alignment.localize.search import Sides
from ci_autotest.alignment.stateful import alone, probe_of, suspicion
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.alignment.verdict import judge_program, live_of
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.discovery import families
from ci_autotest.record.attempt import Attempts
from ci_autotest.run.worker.tests import Library
from ci_autotest.values.case import test_key
from ci_autotest.values.finding import TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which a comparison is ended: the longest takes two.
LIMIT_S = 120
#: One case of this many is called several times too.
PROBED = 10


class ProgressBeacon:
    """Say what is entered, so that it is on disk when the process dies.

    Args:
        path: The file; made anew.
    """

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

    def enter(self, key: Key) -> None:
        """Name the comparison; it has its time from now."""
        signal.alarm(LIMIT_S)
        os.pwrite(self._fd, json.dumps(key).encode().ljust(512), 0)


class Soak:
    """Compare cases.

    Args:
        place: Is told what is entered.
        lost: Comparisons that ended a process, which are not made again.
    """

    def __init__(self, place: ProgressBeacon, lost: frozenset[Key] = frozenset()) -> None:
        """Make the implementations."""
        self.place, self.lost = place, lost
        self.library, self.attempts, self.reference = Library(Path.cwd()), Attempts(), TorchBackend()
        self.made = {name: make() for name, make in IMPLEMENTATIONS.items()}
        self.tests = [test for family in families() for test in self.library.tests(f"builtin:suite/{family}")]

    def compare(self, test, case, names):
        """Return a case's line: outcomes by implementation, and everything that differs."""
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
                self.hold(attempt._replace(cotangents={}), name, rules, record)
        self.place.enter(Key(test.id, case, REFERENCE))
        differentiate(attempt, self.reference)
        for name in names:
            if name not in FORWARD:
                self.hold(attempt, name, rules, record)
        if case % PROBED == 1:
            self.probe(attempt, [name for name in names if record["outcomes"].get(name) == "aligned"], rules, record)
        return record

    def probe(self, attempt, names, rules, record):
        """Call the body of a case several times on implementations that are aligned there."""
        probe = probe_of(attempt, self.reference, lambda _: None)
        for name in names if probe is not None else ():
            key = Key(record["test"], record["case"], name)
            if key in self.lost or not self.made[name].shows_steps:
                continue
            self.place.enter(key)
            trace = self.made[name].run(probe.program, probe.sources, copied=probe.trace.copies)
            if is_surely_aligned(probe.program, trace, probe.trace, rules):
                continue
            try:
                verdict = suspicion(probe, trace, rules)
            except RuntimeError:  # A part of a split input cannot be read once the input was written to.
                continue
            if verdict is None:
                continue
            # A run asks the call alone in a fresh process; these implementations keep nothing.
            sides = Sides(self.made[name], self.reference, rules)
            single = judge_program(alone(live_of(probe), verdict, self.reference), sides).verdict
            if single.kind is None and single.outcome == "aligned":
                record["outcomes"][name] = "accused"
                record["found"].append(line(key, attempt.profile, verdict, "accused"))

    def hold(self, attempt, name, rules, record):
        """Hold one implementation against the reference, and write down what comes of it."""
        key = Key(record["test"], record["case"], name)
        if key in self.lost:
            return
        self.place.enter(key)
        verdict = try_case(attempt, Contender(self.made[name], rules), self.reference).verdict
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
    """Run a chunk, or one comparison of it."""
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
