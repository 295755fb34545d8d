"""One worker's process, with a real process in its place where frameworks do not matter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ci_autotest.run.frames import FRAME_BYTES, HEADER, frame, size_of
from ci_autotest.run.messages import Discover
from ci_autotest.run.orphan_processes import TOKEN, adopt, children, end_children_of
from ci_autotest.run.process import TAIL_BYTES, Output
from ci_autotest.run.worker_start import worker_environ


@pytest.mark.parametrize("garbage", [b"junk!!!!", b"\x00" * 8, b"\xff" * 8, b"\xc1AT2\x01\x00\x00\x00"])
def test_size_of__garbage__is_no_header(garbage):
    assert size_of(garbage) is None


def test_size_of__message__is_its_length():
    data = frame(Discover("a.py"))
    assert size_of(data) == len(data) - HEADER.size


def test_size_of__more_than_a_frame__is_refused():
    assert size_of(data := frame(Discover("a"))[:4] + (FRAME_BYTES + 1).to_bytes(4, "little")) is None, data


def test_output__printed_before_the_task__is_not_told():
    output = Output()
    os.write(output.fd, b"before")
    output.begin()
    os.write(output.fd, b"in it")
    assert output.tail() == "in it"
    output.close()


def test_output__flood__stays_bounded_and_its_end_is_told():
    output = Output()
    with subprocess.Popen(
        [sys.executable, "-c", "import os\nfor _ in range(50): os.write(1, bytes(1 << 20))\nos.write(1, b'the end')"],
        stdout=output.fd,
    ) as child:
        while child.poll() is None:
            output.bound()
            time.sleep(0.001)
    output.bound()
    assert os.fstat(output.fd).st_blocks * 512 <= 1 << 20
    assert output.tail().endswith("the end")
    assert len(output.tail()) <= TAIL_BYTES
    output.close()


def environ_of(pid: int) -> list[str]:
    """Return the environment of a process; nothing where it is gone by now."""
    try:
        return Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return []


@pytest.mark.skipif(sys.platform != "linux", reason="adoption is Linux's")
def test_end_children_of__daemon_that_left_its_group__is_ended_and_others_stay():
    adopt()
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n    os._exit(0)\n"
        "os.wait()\nif os.fork() == 0:\n    time.sleep(60)\n"
    )
    environ = {**os.environ, TOKEN: "mine"}
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, TOKEN: "other"})
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
    held = [pid for pid in children() if f"{TOKEN}=mine" in environ_of(pid)]
    end_children_of("mine")
    left = [pid for pid in held if Path(f"/proc/{pid}").exists()]
    assert (len(held), left, other.poll()) == (2, [], None)
    other.kill()
    other.wait()


def test_worker_environ__secrets_are_kept_out_and_precision_in():
    found = worker_environ({"MY_TOKEN": "x", "AWS_SECRET": "y", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1"})
    assert found == {
        "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1", "NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }  # fmt: skip
