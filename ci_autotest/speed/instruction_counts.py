"""Count the instructions of both sides of a body with callgrind: ``python -m … FOLDER`` prints them as JSON.

A process of its own, because callgrind starts an interpreter for each side. The folder has the program, its tensors and
what makes the candidate. Counts do not depend on the load of the machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import torch
from torch.utils import benchmark

from ci_autotest.alignment.recordings import to_live
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.registry import build
from ci_autotest.program.serialize import decode
from ci_autotest.speed.body_sides import sides_of
from ci_autotest.speed.instruction_request import CANDIDATE, PROGRAM, TENSORS, Counted
from ci_autotest.speed.timing import RunQueue
from ci_autotest.values.speed import Instructions

if TYPE_CHECKING:
    from collections.abc import Callable

#: Calls that are counted of each side.
_CALLS: Final = 3
_SETUP: Final = "from ci_autotest.speed.instruction_counts import call_of; run = call_of({!r}, {!r})"


def call_of(folder: str, side: str) -> Callable[[], object]:
    """Return what runs one side of the folder's program forward and backward, warm."""
    torch.set_num_threads(1)
    counted = msgspec.json.decode((Path(folder) / CANDIDATE).read_bytes(), type=Counted)
    sys.path += [path for path in counted.folders if path not in sys.path]
    live = to_live(decode((Path(folder) / PROGRAM).read_bytes(), (Path(folder) / TENSORS).read_bytes()))
    sides = sides_of(live, build(counted.candidate, counted.candidate.device, counted.folders), TorchBackend())
    assert sides is not None  # noqa: S101 - the program was timed
    chosen = sides.candidate if side == "candidate" else sides.reference
    queue = RunQueue()
    chosen.once(queue)
    return lambda: chosen.once(queue)


def _count(folder: str, side: str) -> int:
    timer = benchmark.Timer("run()", setup=_SETUP.format(folder, side))
    found = timer.collect_callgrind(number=_CALLS, repeats=None, collect_baseline=False, retain_out_file=False)
    return int(found.counts(denoise=False)) // _CALLS


def main(folder: str) -> None:
    """Print the counts of both sides."""
    # The wrapper starts `python`, which must be this interpreter.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])  # noqa: PTH120 - not resolved
    counts = Instructions(candidate=_count(folder, "candidate"), reference=_count(folder, "reference"))
    sys.stdout.write(msgspec.json.encode(counts).decode())


if __name__ == "__main__":
    main(sys.argv[1])
