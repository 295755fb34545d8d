"""Planted faults through the whole command: which are detected, blamed and shrunk, and the cost of shrinking."""

from __future__ import annotations

import io
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from ci_autotest.commands.progress import Progress
from ci_autotest.commands.request import Request
from ci_autotest.commands.run import run as run_command
from ci_autotest.config import Config
from ci_autotest.findings import shrink_driver as driver
from ci_autotest.kinds import SubstituteCandidate
from ci_autotest.values.finding import TOLERATED_BLAMES, Finding
from tests.quality.planted import FAULTS

ROOT = Path(__file__).resolve().parents[1]
STEPS, SIZE = 3, 3
#: Share of the faults for which each property must hold.
GOALS = {"detected": 1.0, "operator": 0.95, "blame": 0.95, "small": 0.9, "verified": 1.0}
SECONDS, EVALUATIONS = 2.0, 200
#: Faults of one run: every candidate runs the tests of all of them, and a run starts two workers.
TOGETHER = 12
#: Time limit of a case, which takes milliseconds: the kernel that hangs waits so long some twenty times.
HANG = "10s"


@dataclass
class Meter:
    """Seconds and evaluations of each shrinking."""

    seconds: list[float] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)


def metered(meter):
    """Measure each shrinking of an eager candidate, by wrapping the function that does it."""
    plain, kind = driver.shrink, driver.Shrinker
    made = []

    class Counting(kind):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    def shrink(shown, trial):
        begun = time.perf_counter()
        found = plain(shown, trial)
        meter.seconds.append(time.perf_counter() - begun)
        meter.trials.append(made[-1].trials)
        return found

    driver.Shrinker = Counting
    driver.shrink = shrink


def planted(strict, part, parts):
    """Return the faults of a strictness in one of several parts, by the name of the faulty candidate."""
    return {
        f"fault_{i}": fault for i, fault in enumerate(FAULTS) if fault.strict is strict and i % parts == part
    }  # fmt: skip


def run(faults, strictness, output):
    """Run the tests of some faults on a candidate for each, by the command."""
    candidates = tuple(
        SubstituteCandidate(
            name=name, replace={fault.operator if "." in fault.operator and fault.operator.startswith("torch.")
                     else f"torch.{fault.operator}": f"planted.{name}"},
        )
        for name, fault in faults.items()
    )  # fmt: skip
    config = Config(
        candidates=candidates, strictness=strictness, output=str(output), workers=2, case_timeout=HANG, cases=20
    )
    request = Request(
        config=config, root=ROOT, start=ROOT, candidates=candidates,
        paths=tuple(sorted({f"tests/quality/autotest_bodies.py::{fault.body}" for fault in faults.values()})),
    )  # fmt: skip
    return run_command(request, os.environ, Progress(io.StringIO(), is_live=False))


def reached_goals(fault, found: list[Finding]):
    """Return for each goal whether the findings of a fault reach it."""
    counted = [item for item in found if item.blame not in TOLERATED_BLAMES and item.kind != "leniency"]
    best = next((item for item in counted if item.kind in fault.kinds), counted[0] if counted else None)
    if best is None:
        return dict.fromkeys(GOALS, False)
    operators = {item.operator.rpartition(".")[2] for item in counted}
    return {
        "detected": True,
        "operator": operators == {fault.operator.rpartition(".")[2]},
        "blame": all(item.blame == "candidate" for item in counted),
        "small": best.steps <= STEPS and best.dims_max <= max(SIZE, fault.size),
        "verified": all(item.repro_verified for item in counted if item.confirmed),
    }


def found_by(fault, candidate: str, findings) -> list[Finding]:
    """Return the findings of a faulty candidate that the fault's own test shows."""
    own = [item for item in findings if item.candidate == candidate]
    return [item for item in own if any(test.endswith(f"::{fault.body}") for test in item.tests)]


def _missed(fault, verdict: dict[str, bool], found: list[Finding]) -> list[str]:
    missed = [goal for goal, holds in verdict.items() if not holds]
    seen = [(f.operator, f.kind, f.blame, f.outcome, f.steps, f.dims_max, f.repro_verified) for f in found]
    return [f"  {fault.name}: {', '.join(missed)}; {seen[:4]}"] if missed else []


@dataclass
class Table:
    """Result of each fault, and the cost of shrinking."""

    verdicts: dict[str, dict[str, bool]]
    details: list[str]
    meter: Meter
    seconds: float

    @property
    def missed(self) -> list[str]:
        """Goals whose share is missed."""
        return [goal for goal, share in GOALS.items() if self.count(goal) < share * len(self.verdicts)]

    def count(self, goal: str) -> int:
        """Return the number of faults that reach a goal."""
        return sum(verdict[goal] for verdict in self.verdicts.values())


def measure(part: int = 0, parts: int = 1) -> Table:
    """Run the faults of a part through the whole command: all of them unless there are several parts."""
    meter = Meter()
    metered(meter)
    begun = time.perf_counter()
    verdicts: dict[str, dict[str, bool]] = {}
    details: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for strict, strictness in ((False, "tolerance"), (True, "bitwise")):
            waiting = list(planted(strict, part, parts).items())
            while waiting:
                faults, waiting = dict(waiting[:TOGETHER]), waiting[TOGETHER:]
                result = run(faults, strictness, Path(folder) / f"{strictness}-{len(waiting)}")
                for name, fault in faults.items():
                    verdicts[name] = reached_goals(fault, found_by(fault, name, result.findings))
                    details += _missed(fault, verdicts[name], found_by(fault, name, result.findings))
    return Table(verdicts, details, meter, time.perf_counter() - begun)


def main() -> int:
    """Print the table; return the number of missed goals."""
    table = measure()
    total, meter = len(table.verdicts), table.meter
    sources = sum(bool(fault.source) for fault in FAULTS)
    print(
        f"{total} faults over {len({fault.operator for fault in FAULTS})} operators, {sources} from published reports"
    )
    for goal, share in GOALS.items():
        count = table.count(goal)
        print(f"  {goal:10} {count:4} / {total}  {100 * count / total:5.1f} %  (goal {100 * share:.0f} %)")
    seconds, trials = statistics.median(meter.seconds), statistics.median(meter.trials)
    print(f"  shrinking: median {seconds:.2f} s and {trials:.0f} evaluations (goal {SECONDS:.0f} s, {EVALUATIONS})")
    print(
        f"  greatest: {max(meter.seconds):.2f} s and {max(meter.trials)} evaluations over {len(meter.trials)} findings"
    )
    print(f"  the whole benchmark took {table.seconds:.0f} s")
    print("\n".join(table.details))
    return len(table.missed) + (seconds > SECONDS) + (trials > EVALUATIONS)


if __name__ == "__main__":
    sys.exit(main())
