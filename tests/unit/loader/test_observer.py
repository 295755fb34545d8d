"""A loader that waits for ever: whether one of its workers has ended is said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ci_autotest.loader.observer import LoaderError, _wait

#: Starts two processes, of which one ends without an error and one in some way, and hears of neither.
LOADER = """
import os, signal, sys, time
for end in (lambda: os._exit(0), lambda: {end}):
    pid = os.fork()
    if pid == 0:
        end()
    while open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells nothing of processes")
@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "1 of its workers ended by signal 9 (SIGKILL), and it waits."),
        ("os._exit(3)", "1 of its workers ended with status 3, and it waits."),
        ("os._exit(0)", "a worker, the dataset or the function hangs. Raise case_timeout if it needs longer."),
    ],
    ids=["killed", "status 3", "status 0"],
)
def test_wait__worker_that_has_ended__is_said(end: str, why: str):
    with subprocess.Popen(
        [sys.executable, "-c", LOADER.format(end=end)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        with pytest.raises(LoaderError) as waited:
            _wait([process], 0.0, 60.0, lambda: None)
        process.stdin.close()

    assert str(waited.value) == f"its loader did not finish in 60 s: {why}"
