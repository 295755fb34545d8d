"""OneFlow's own harness with a clock: runs in OneFlow's interpreter, with torch 1.12.1 from another environment.

It reads lines ``NAME GRAPH CASES``, and answers with the seconds that ``autotest`` took for that many accepted cases.
"""

from __future__ import annotations

import os
import sys
import time
import unittest
from typing import Any

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # OneFlow prints at import
sys.path.append(sys.argv[1])  # at the end, so that both use OneFlow's NumPy

from oneflow.test_utils import automated_test_util as theirs  # noqa: E402 - the path is set above

torch: Any = theirs.torch


def absolute(_: unittest.TestCase) -> Any:
    return torch.abs(theirs.random_tensor(ndim=2, dim0=theirs.random(1, 8), dim1=theirs.random(1, 8)))


def matmul(_: unittest.TestCase) -> Any:
    inner = theirs.random(1, 8)
    x = theirs.random_tensor(ndim=2, dim0=theirs.random(1, 8), dim1=inner)
    return torch.matmul(x, theirs.random_tensor(ndim=2, dim0=inner, dim1=theirs.random(1, 8)))


def conv2d(_: unittest.TestCase) -> Any:
    channels = theirs.random(1, 5)
    x = theirs.random_tensor(ndim=4, dim0=theirs.random(1, 4), dim1=channels, dim2=8, dim3=8)
    weight = theirs.random_tensor(ndim=4, dim0=theirs.random(1, 5), dim1=channels, dim2=3, dim3=3)
    return torch.nn.functional.conv2d(x, weight, padding=1)


BODIES = {"absolute": absolute, "matmul": matmul, "conv2d": conv2d}


def main() -> None:
    """Answer every line."""
    for line in sys.stdin:
        name, graph, cases = line.split()
        run = theirs.autotest(n=int(cases), check_graph=graph == "graph")(BODIES[name])
        begun = time.perf_counter()
        run(unittest.TestCase("run"))
        answers.write(f"{time.perf_counter() - begun}\n")
        answers.flush()


main()
