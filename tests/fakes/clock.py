"""Clocks that a test moves, or that sleep less than they are asked to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class FakeClock:
    """Tell a time that only ``sleep`` and ``tick_s`` move; seconds."""

    now_s: float = 0.0
    tick_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


@dataclass
class HurriedClock(FakeClock):
    """Tell the real time, and sleep a quarter of what is asked."""

    def __call__(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / 4)
