"""Time of `ci-autotest --help`, and processor time of a first finding, repro verified, beside an import of torch."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_S = 0.2
ROUNDS = 9
#: Imports of torch that a run with one finding may cost.
GOAL_IMPORTS = 3.0
FILES = {
    "autotest.yml": "candidates:\n- {name: kernels, backend: substitute, replace: {torch.relu: mykernels.relu}}\n",
    "mykernels.py": "def relu(x):\n    return x.clamp_min(0) * 1.5\n",
    "autotests/autotest_relu.py": "from ci_autotest import autotest, random_tensor, torch\n\n\n"
    "@autotest(n=3)\ndef relu():\n    return torch.relu(random_tensor(ndim=2))\n",
}


def main() -> int:
    """Print both figures; return how many goals were missed."""
    return _help() + _first_finding()


def _first_finding() -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        pairs = [
            (
                _cpu_s(["-m", "ci_autotest", "run", "--workers", "1"], folder, 1),
                _cpu_s(["-c", "import torch"], folder, 0),
            )
            for _ in range(3)
        ]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    missed = ours > GOAL_IMPORTS * bare
    print(
        f"a first finding {ours:.2f} s, an import of torch {bare:.2f} s: {ours / bare:.1f} times (goal {GOAL_IMPORTS})"
        f"{'  MISSED' if missed else ''}"
    )
    return int(missed)


def _cpu_s(words: list[str], folder: str, status: int) -> float:
    """Return the processor time of a command and of all that it starts: the fork server waits for what it forks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == status, done.stderr.decode()[-2000:]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _help() -> int:
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
