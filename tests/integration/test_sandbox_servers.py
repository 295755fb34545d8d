"""Hosts that the server of a sandbox forks: each is as fresh as a sandbox of its own, and ends as its owner says."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ci_autotest.host.sandbox_client import SandboxedProcess, SandboxJob, forked_in_sandbox
from ci_autotest.kinds import SubstituteCandidate
from ci_autotest.run.sandbox_servers import SandboxStarter
from ci_autotest.values.sandbox import sandbox_servers
from tests.projects import processes, wait_until
from tests.sandboxes import lacking_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(lacking_sandbox()), reason=lacking_sandbox())

#: Says on its import what it sees, and leaves what it can.
KERNEL = """
import os, subprocess, sys

PLACES = ["/tmp/left", "/dev/shm/left", "/left", "/dev/left", os.path.expanduser("~/left")]
seen = [place for place in PLACES if os.path.exists(place)]
written = []
for place in PLACES:
    try:
        open(place, "w").close()
        written.append(place)
    except OSError:
        pass
subprocess.Popen(["sleep", "87654"], start_new_session=True)
raise RuntimeError(repr((seen, sorted(set(written)), os.getpid(), "HELD" in os.environ, os.environ.get("OWN"))))
"""


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SandboxStarter]:
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(1000)\n")
    (tmp_path / "abort.py").write_text("import os\nos.abort()\n")
    (tmp_path / "greedy.py").write_text("import torch\nHELD = torch.ones(1 << 31)\n")
    row = SubstituteCandidate(name="mine", replace={"torch.exp": "kernels.exp"}, sandbox=["."], env={"OWN": "1"})
    started = SandboxStarter([row], tmp_path, {**os.environ, "HELD": "1"}, 3 << 30)
    for name, value in started.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HELD", "1")
    yield started
    for host in HOSTS:
        host.kill()
        host.wait(20)
    HOSTS.clear()
    started.close()


def address() -> str:
    return sandbox_servers(os.environ).addresses["mine"]


HOSTS: list[SandboxedProcess] = []


class Started:
    """A host of a module, and what it says first."""

    def __init__(self, folder: Path, module: str) -> None:
        to_read, self.write_fd = os.pipe()
        self.read_fd, to_write = os.pipe()
        with tempfile.TemporaryFile() as place, tempfile.TemporaryFile() as printed:
            place.write(bytes(16))
            place.flush()
            kernels = json.dumps([{"torch.exp": f"{module}.exp"}, []])
            words = ["torch", "cpu", "0", kernels, str(folder)]
            own = (to_read, to_write, 2, place.fileno(), printed.fileno())
            host = forked_in_sandbox(address(), SandboxJob(words, {"OWN": "1"}, 3 << 30), own)
        assert isinstance(host, SandboxedProcess)
        os.close(to_read)
        os.close(to_write)
        os.close(self.write_fd)
        self.host = host
        HOSTS.append(host)

    def said(self) -> str:
        with os.fdopen(self.read_fd, "rb", closefd=False) as file:
            return file.read(1 << 16).decode(errors="replace")


def test_host__earlier_hosts_left_something__sees_nothing_of_it(starter: SandboxStarter, tmp_path: Path):
    said = [Started(tmp_path, "kernels").said().partition("RuntimeError: ")[2] for _ in range(2)]
    first, second = (text.partition("It is looked for")[0] for text in said)
    assert first == second, said
    assert first.startswith("([], ['/dev/shm/left', '/tmp/left'], "), first
    assert "False, '1')" in first, first
    # What a host has started ended with it.
    assert wait_until(lambda: not processes("87654"), 20), processes("87654")


def test_host__that_hangs__ends_with_its_owners_connection(starter: SandboxStarter, tmp_path: Path):
    started = Started(tmp_path, "hang")
    time.sleep(0.5)
    assert started.host.poll() is None
    started.host.kill()
    assert started.host.wait(20) == -signal.SIGKILL


def test_host__that_aborts__ended_by_its_signal(starter: SandboxStarter, tmp_path: Path):
    assert Started(tmp_path, "abort").host.wait(30) == -signal.SIGABRT


def test_host__takes_more_memory_than_is_allowed__cannot(starter: SandboxStarter, tmp_path: Path):
    assert "memory" in Started(tmp_path, "greedy").said()


def test_script__in_the_sandbox__prints_and_ends_with_its_status(starter: SandboxStarter, tmp_path: Path):
    (tmp_path / "script.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(3)\n")
    with tempfile.TemporaryFile() as printed:
        job = SandboxJob(["a", "b"], {}, script=str(tmp_path / "script.py"))
        process = forked_in_sandbox(address(), job, (printed.fileno(), printed.fileno()))
        assert process is not None
        assert process.wait(20) == 3
        printed.seek(0)
        assert printed.read() == b"['a', 'b']\n"


def test_forked_in_sandbox__server_is_gone__is_none(starter: SandboxStarter):
    starter.close()
    assert forked_in_sandbox(address(), SandboxJob([], {}), (0, 1, 2, 0, 1)) is None


@pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux's")
def test_close__servers__are_ended(starter: SandboxStarter):
    name = str(starter._processes[0].pid)
    assert Path("/proc", name).exists()
    starter.close()
    assert not Path("/proc", name).exists()
