"""How the repro of a framework that finds its ranks by environment variables starts them, before it is imported."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from typing import NoReturn


def start_group(ranks: int, timeout_s: int) -> NoReturn:
    """Run this script as each rank, and end with the status of all; importing the framework waits for the others."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        group = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    printed = [tempfile.TemporaryFile("w+", errors="replace") for _ in range(ranks)]
    started = [
        subprocess.Popen(
            [sys.executable, os.path.realpath(__file__)],
            env={**os.environ, **group, **dict.fromkeys(("REPRO_RANK", "RANK", "LOCAL_RANK"), str(rank))},
            stdout=printed[rank],
        )
        for rank in range(ranks)
    ]
    until = time.monotonic() + timeout_s
    while any(rank.poll() is None for rank in started) and time.monotonic() < until:
        if any(rank.poll() is not None for rank in started):
            until = min(until, time.monotonic() + 15)  # the others end soon, or wait for ever
        time.sleep(0.05)
    statuses = [rank.poll() for rank in started]
    for rank in started:
        rank.kill()
        rank.wait()
    ends = ["waits for ever" if status is None else f"ended with status {status}" for status in statuses]
    for number, output in enumerate(printed):
        output.seek(0)
        text = output.read()
        if number == 0 or statuses[number] != statuses[0]:
            print(text, end="")
        if statuses[number] == 0 and "fixed: " not in text:  # the candidate ended it
            statuses[number], ends[number] = -1, "ended with status 0 before its end"
    if 2 in statuses or set(statuses) in ({0}, {1}):
        sys.exit(max(status for status in statuses if status is not None))
    print("misaligned: " + ", ".join(f"rank {rank} {end}" for rank, end in enumerate(ends)))
    sys.exit(1)
