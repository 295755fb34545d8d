"""What `make run` shows: a few tests of the shipped suite on a compiler, and the kernel example with its fault.

``--whole`` runs the whole suite, which takes a quarter of an hour.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Tests of which a compiler does some differently: each case is compiled, so a few.
FEW = ["builtin:suite/losses", "-k", "l1_loss"]
PLANTED = 1  # the exit status of a run that found a misalignment


def command(title: str, *arguments: str) -> int:
    print(f"\n== {title}\n   ci-autotest {' '.join(arguments)}\n", flush=True)
    done = subprocess.run([sys.executable, "-m", "ci_autotest", *arguments], cwd=ROOT, check=False)
    return done.returncode


def main() -> int:
    is_whole = sys.argv[1:] == ["--whole"]
    tests = ["builtin:suite"] if is_whole else FEW
    suite = command(
        f"{'The shipped suite' if is_whole else 'A few tests of the shipped suite'}: torch against itself, and against "
        "torch.compile with aot_eager.\n   What is known of the compiler was read, and is accepted by rows of `known`",
        "run", *tests, "--config", "examples/suite.yml", "--output", "autotest-report/suite",
    )  # fmt: skip
    kernels = command(
        "Six hand-written kernels against torch; one has a fault that a reviewer would miss",
        "run", "--config", "examples/kernels/autotest.yml", "--output", "autotest-report/kernels",
    )  # fmt: skip
    if suite != 0 or kernels != PLANTED:
        print(f"\nexpected status 0 of the suite and {PLANTED} of the kernels, got {suite} and {kernels}")
        return 1
    print("\nThe planted fault was found. Its repro, alone:")
    for repro in sorted((ROOT / "autotest-report/kernels/findings").glob("*/repro.py")):
        print(f"  python {repro.relative_to(ROOT)}")
    print("Reports: autotest-report/suite/report.json, autotest-report/kernels/report.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
