"""Memory and output of the parent process for many cases: ``python -m benchmarks.parent CASES [TESTS]``.

Prints the parent's peak resident memory, the sizes of the report's files, and the duration. Every tenth test is
misaligned in every case, so that the run has findings to keep.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KERNELS = """
import torch


def exp(x):
    return torch.Tensor.exp(x)


def tanh(x):
    return torch.Tensor.tanh(x) + 1
"""
CONFIG = """
candidates:
  - {name: kernels, backend: substitute, replace: {torch.exp: mykernels.exp, torch.tanh: mykernels.tanh}}
"""
TEST = """

@autotest(n={cases}, auto_backward=False)
def t{number}():
    return torch.{operator}(random_tensor(ndim=1, dim0=2, requires_grad=False))
"""


def main(cases: int, tests: int) -> None:
    """Run, and print the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "autotests").mkdir()
        (folder / "mykernels.py").write_text(KERNELS)
        (folder / "autotest.yml").write_text(CONFIG)
        bodies = (
            TEST.format(cases=cases // tests, number=i, operator="tanh" if i % 10 == 0 else "exp") for i in range(tests)
        )
        head = "from ci_autotest import autotest, random_tensor, torch\n"
        (folder / "autotests" / "autotest_many.py").write_text(head + "".join(bodies))
        begun = time.monotonic()
        words = [sys.executable, "-m", "ci_autotest", "run", "--fail-on", "never"]
        with subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL) as process:
            peak_kib = 0
            while process.poll() is None:
                peak_kib = max(peak_kib, memory_kib(process.pid))
                time.sleep(0.05)
        seconds = time.monotonic() - begun
        report = folder / "autotest-report" / "report.json"
        read = json.loads(report.read_text())
        sizes = {path.name: path.stat().st_size for path in report.parent.iterdir() if path.is_file()}
        print(f"{read['summary']['cases']:,} cases of {tests:,} tests in {seconds:.0f} s")
        print(f"parent: peak of {peak_kib / 1024:.0f} MiB, report included")
        print("files, bytes: " + ", ".join(f"{name} {size:,}" for name, size in sorted(sizes.items())))


def memory_kib(pid: int) -> int:
    """Return the peak resident memory of a process so far, in KiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
