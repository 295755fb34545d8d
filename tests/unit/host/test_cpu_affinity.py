"""All threads on one processor while there is work, and anywhere afterwards."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from ci_autotest.host.loop import Processor

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="threads have no processors of their own elsewhere"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one processor"),
]


@pytest.mark.parametrize(("threads", "is_pinned"), [("1", True), ("4", False), (None, False)])
def test_pinned__computes_in_so_many_threads__all_share_a_processor_or_none(monkeypatch, threads, is_pinned):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    everywhere, ended, begun = os.sched_getaffinity(0), threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (begun.set(), ended.wait()))
    other.start()
    begun.wait()
    try:
        processor = Processor()
        for _ in range(2):
            with processor.pinned():
                own, others = os.sched_getaffinity(0), os.sched_getaffinity(other.native_id)
                assert (own == others, len(own)) == (True, 1 if is_pinned else len(everywhere))
            assert os.sched_getaffinity(0) == everywhere
    finally:
        os.sched_setaffinity(other.native_id, everywhere)
        ended.set()
        other.join()
