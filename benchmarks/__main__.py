"""``make bench``: print every figure with its goal, in one run."""

from __future__ import annotations

import sys

from benchmarks import comparison, hosts, overhead, quality, scaling, startup, suite_ratio

if __name__ == "__main__":
    missed = 0
    for part in (suite_ratio, overhead, hosts, comparison, scaling, startup, quality):
        print(f"\n== {part.__doc__.splitlines()[0]}")
        missed += part.main()
    print(f"\n{missed} goals missed or rows void" if missed else "\nall goals are met")
    sys.exit(0)
