"""For crashes and hangs: the candidate runs in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds that the candidate's process may take.
TIMEOUT_S: int


def watched(main: Callable[[], int]) -> int:
    """Run this script in a process of its own; return 1 if that process crashes or hangs."""
    returned = "the candidate returned"
    if os.environ.get("REPRO_WATCHED"):
        print("imported", flush=True)
        status = main()
        print(returned, flush=True)
        return status
    # Output goes to a file, because a grandchild could keep a pipe open. The group lets grandchildren be killed too.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        environ = {**os.environ, "REPRO_WATCHED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen(
            [sys.executable, os.path.realpath(__file__)],
            env=environ,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        until = time.monotonic() + 300
        while child.poll() is None and not os.fstat(output.fileno()).st_size and time.monotonic() < until:
            time.sleep(0.05)  # Imports are no part of the time that a candidate has.
        try:
            end = child.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            end = None
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except OSError:
            pass
        child.wait()
        output.seek(0)
        printed = output.read()
    print(printed, end="")
    if end is None:
        print(f"misaligned: the candidate did not return within {TIMEOUT_S} s")
        return 1
    if returned not in printed and end != 2:
        print(f"misaligned: the candidate ended its process with status {end}")
        return 1
    return end
