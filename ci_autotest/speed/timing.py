"""Times of two sides of one body: interleaved, warmed up, forward and backward, on the same inputs.

Both sides read the very same tensors, because the address of a tensor alone can change the time of a call by some per
cent. The order of the sides is random in each pair. Of the few calls of a pair only the fastest counts, and the time in
which a call waited for a processor does not: on a loaded machine, that is most of the time of a call of milliseconds.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from contextlib import closing, contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils import benchmark

from ci_autotest.backends.autograd_engine import gradients
from ci_autotest.speed.paired_ratio import paired_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


#: Fewest and most pairs of a measurement. It ends between them as soon as the interval is narrow; that does not look at
#: where the interval lies, so equal code is called slower no more often.
PAIRS: Final = (41, 201)
NARROW: Final = 1.03
#: Width of an interval that is enough once the usual time is spent.
_WIDE: Final = 1.25
#: Seconds that the calls of one side take in a pair, and the most calls that are made for that.
_PAIR_S: Final = 0.002
_CALLS: Final = 50
#: Seconds after which a measurement with enough pairs for an interval ends, and after which any does.
_ENOUGH_S: Final = 5.0
_MOST_S: Final = 20.0
#: Seconds of one call of both sides beyond which there is no time for enough pairs.
LONGEST_S: Final = 1.0
_ENOUGH_PAIRS: Final = 21

#: Reads the time after all work on an accelerator is done.
_now: Final[Callable[[], float]] = benchmark.timer


class Times(NamedTuple):
    """Seconds of one call of a side."""

    forward: float
    backward: float


class Side:
    """One side of a measurement.

    Args:
        call: Runs the body once and returns its outputs.
        cotangents: Gradients of the outputs, by position.
    """

    def __init__(self, call: Callable[[], Sequence[Any]], cotangents: Mapping[int, torch.Tensor]) -> None:
        self._call = call
        self._cotangents = dict(cotangents)
        self._leaves: list[torch.Tensor] = []
        self._leaves = _leaves(self._roots(self.outputs())[0])
        self.has_backward = bool(self._leaves)

    def outputs(self) -> Sequence[Any]:
        """Run the body forward."""
        return self._call()

    def once(self, queue: RunQueue) -> Times:
        """Run the body forward and backward."""
        outputs, forward = _timed(self._call, queue)
        if not self.has_backward:
            return Times(forward, 0.0)
        roots, weights = self._roots(outputs)
        _, backward = _timed(lambda: gradients(roots, weights, self._leaves), queue)
        return Times(forward, backward)

    def _roots(self, outputs: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        roots, weights = [], []
        for position, weight in self._cotangents.items():
            value = outputs[position]
            if isinstance(value, torch.Tensor) and value.requires_grad and value.shape == weight.shape:
                roots.append(value)
                weights.append(weight.to(value.device, value.dtype))
        return roots, weights


def _timed(call: Callable[[], Any], queue: RunQueue) -> tuple[Any, float]:
    """Return what a call returns, and its seconds without those in which it waited for a processor."""
    begun = _now()
    # Read within the measured time, so that a wait before or after makes a call longer, which does not count then.
    waited = queue.waited_s()
    found = call()
    waited = queue.waited_s() - waited
    whole = _now() - begun
    # The system counts a wait by another clock: one that is longer than the call says nothing of it.
    return found, whole - waited if waited < whole else whole


class PairedTimes(NamedTuple):
    """Paired seconds ``(candidate, reference)``; ``backward`` is empty if a side has no backward pass."""

    forward: list[tuple[float, float]]
    backward: list[tuple[float, float]]


def measured(candidate: Side, reference: Side, seed: int, progress: Callable[[], None]) -> PairedTimes:
    """Return the paired times of two sides; none if a call of both takes longer than ``LONGEST_S``.

    Args:
        candidate: The side that is measured.
        reference: What it is measured against.
        seed: Decides the order within each pair.
        progress: Called before each pair.
    """
    chosen = random.Random(seed)  # noqa: S311 - no secret
    begun = time.monotonic()
    found = PairedTimes([], [])
    sides = (candidate, reference)
    with _without_collector(), closing(RunQueue()) as queue:
        if sum(sum(side.once(queue)) for side in sides) > LONGEST_S:
            return found
        calls = _calls(sides, queue)
        while not _is_enough(found, time.monotonic() - begun):
            progress()
            times = _pair(sides, calls, chosen, queue)
            found.forward.append((times[0].forward, times[1].forward))
            if candidate.has_backward and reference.has_backward:
                found.backward.append((times[0].backward, times[1].backward))
    return found


def _is_enough(found: PairedTimes, spent_s: float) -> bool:
    count = len(found.forward)
    if count >= PAIRS[1] or spent_s > _MOST_S:
        return True
    if spent_s > _ENOUGH_S and count >= _ENOUGH_PAIRS:
        return _is_within(found, _WIDE)
    return count >= PAIRS[0] and count % 20 == 1 and _is_within(found, NARROW)


def _is_within(found: PairedTimes, width: float) -> bool:
    ratios = [paired_ratio(pairs) for pairs in found if pairs]
    return all(ratio is not None and ratio.high <= width * ratio.low for ratio in ratios)


def _calls(sides: tuple[Side, Side], queue: RunQueue) -> int:
    """Return how many calls of each side a pair has; the sides are warm afterwards."""
    one_s = median(sum(side.once(queue)) for side in sides * 2)
    return max(2, min(_CALLS, round(_PAIR_S / max(one_s, 1e-9))))


def _pair(sides: tuple[Side, Side], calls: int, chosen: random.Random, queue: RunQueue) -> list[Times]:
    """Return the shortest times of both sides in a few alternating calls, forward and backward by themselves."""
    best = [Times(float("inf"), float("inf"))] * len(sides)
    for _ in range(calls):
        for at in (0, 1) if chosen.getrandbits(1) else (1, 0):
            seen = sides[at].once(queue)
            best[at] = Times(min(best[at].forward, seen.forward), min(best[at].backward, seen.backward))
    return best


@contextmanager
def _without_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _leaves(roots: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the leaves that a backward pass from ``roots`` reaches, whoever owns them."""
    found: dict[int, torch.Tensor] = {id(root): root for root in roots if root.is_leaf}
    left, seen = [root.grad_fn for root in roots if root.grad_fn is not None], set()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        left += [target for target, _ in node.next_functions if target is not None]
    return list(found.values())


# Seconds that this thread was ready to run and had to wait for a processor, which no call is to blame for.


_NS: Final = 1e-9


class RunQueue:
    """The time that the current thread has waited; always 0 where the system does not tell.

    Time in which the thread sleeps or waits for something else is not part of it, so it stays in the time of a call.

    Source:
        ``/proc/<pid>/task/<tid>/schedstat``, second field: nanoseconds spent waiting on a runqueue (Linux,
        Documentation/scheduler/sched-stats.rst).
    """

    def __init__(self) -> None:
        try:
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1

    def waited_s(self) -> float:
        """Return the seconds so far."""
        if self._file < 0:
            return 0.0
        return int(os.pread(self._file, 64, 0).split()[1]) * _NS

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
