"""Memory of a process and of what it started: shared pages count once, and the rank that holds the most is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ci_autotest.backends.ranks.processes.process_activity import has_ended
from ci_autotest.run.resident_memory import Excess, MemoryWatch
from ci_autotest.values.process_memory import share_bytes
from tests.projects import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system tells no memory")
MIB = 1 << 20
#: Holds 64 MiB that its three children share, of which the second, rank 1, takes 32 MiB of its own.
FAMILY = """
import os, sys
sys.path.append(sys.argv[1])
from ci_autotest.host.this_process import name_rank
held = bytearray(os.urandom(1)) * (64 << 20)
for rank in range(3):
    read, write = os.pipe()
    if os.fork() == 0:
        name_rank(rank)
        own = bytearray(os.urandom(1)) * (32 << 20) if rank == 1 else b""
        os.write(write, b"x")
        sys.stdin.read()
        os._exit(0)
    os.read(read, 1)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def family():
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY, *[path for path in sys.path if path][:1]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def test_excess__forked_processes__share_what_none_has_written_to(family):
    # As the system lists them, they hold four times 64 MiB.
    assert MemoryWatch(family.pid, 200 * MIB).excess() is None


def test_excess__one_rank_holds_more__is_named(family):
    watch = MemoryWatch(family.pid, 80 * MIB)

    found = [watch.excess(), watch.excess()]

    assert [(each.rank, each.held_bytes > 80 * MIB, each.rank_bytes > 32 * MIB) for each in found] == [
        ("rank 1", True, True)
    ] * 2


def test_excess__no_limit__is_not_asked(family):
    assert MemoryWatch(family.pid, 0).excess() is None


@pytest.mark.parametrize(
    ("excess", "said"),
    [
        (Excess(3 << 30, "", 0), "held 3.0 GiB of memory"),
        (Excess(3 << 30, "rank 2", 5 << 28), "held 3.0 GiB of memory (rank 2: 1.2 GiB)"),
    ],
    ids=["no rank", "a rank"],
)
def test_excess__text__names_the_rank(excess, said):
    assert str(excess) == said


def test_share_bytes__process_that_has_ended__holds_nothing():
    # A rank that ends while the memory is added up: what it shared with others must not count as its own.
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout.read() == b""
        assert wait_until(lambda: has_ended(process.pid), 60)
        before = share_bytes(process.pid)

    assert (before, share_bytes(process.pid)) == (0, 0)
