"""The time that a thread waited for a processor, without that in which it slept."""

from __future__ import annotations

import os
import time

import pytest

from ci_autotest.speed.timing import RunQueue


def test_waited_s__of_a_thread__never_falls_and_leaves_sleep_out():
    queue = RunQueue()
    before = queue.waited_s()
    begun = time.perf_counter()
    time.sleep(0.2)
    slept = time.perf_counter() - begun
    waited = queue.waited_s() - before
    queue.close()
    assert 0 <= waited <= slept - 0.19


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the system does not tell")  # noqa: PTH110
def test_waited_s__two_busy_processes_on_one_processor__is_counted():
    pinned = {min(os.sched_getaffinity(0))}
    other = os.fork()
    if other == 0:
        os.sched_setaffinity(0, pinned)
        while True:
            pass
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, pinned)
        queue = RunQueue()
        start = queue.waited_s()
        while queue.waited_s() - start < 0.01:
            pass
    finally:
        os.sched_setaffinity(0, before)
        os.kill(other, 9)
        os.waitpid(other, 0)


def test_waited_s__after_close__is_zero():
    queue = RunQueue()
    queue.close()
    queue.close()
    assert queue.waited_s() == 0.0
