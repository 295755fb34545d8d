"""The fork server: fresh workers and isolated scripts, how they end, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from ci_autotest.kinds import KINDS
from ci_autotest.run.fork_client import ForkClient, preloaded
from ci_autotest.run.messages import Hello, Ready
from ci_autotest.run.orphan_processes import TOKEN, adopt
from ci_autotest.run.process import Limits, WorkerProcess
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.rank_servers import RANK_IMPORTS
from tests.projects import Project, processes, python, wait_until

HELLO = Hello(
    root="/", folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=[], tolerances=[]
)  # fmt: skip


@pytest.fixture(scope="module")
def fork_client():
    held = ForkClient(os.environ, Limits(60))
    yield held
    held.close()


def test_start__twice__gives_two_fresh_workers(fork_client):
    workers = [fork_client.start() for _ in range(2)]
    try:
        assert [isinstance(worker.ask(HELLO), Ready) for worker in workers] == [True, True]
        assert workers[0]._process.pid != workers[1]._process.pid
    finally:
        for worker in workers:
            worker.close()


def test_start__worker_and_script__are_of_one_server_that_imported_torch_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; sys.exit('torch' in sys.modules)")
    held = ForkClient(os.environ, Limits(60))
    try:
        worker = held.start()
        assert isinstance(worker.ask(HELLO), Ready)
        worker.close()
        assert held.run_script(script, [], 300) == 1
        assert len(held._processes) == 1
    finally:
        held.close()


def test_start__modules_in_the_current_folder__are_not_imported(tmp_path, monkeypatch):
    for name in ("json", "socket", "torch", "numpy", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    (tmp_path / "script.py").write_text("import json, torch; raise SystemExit(8)")
    monkeypatch.chdir(tmp_path)
    held = ForkClient(os.environ, Limits(60))
    try:
        worker = held.start()
        assert isinstance(worker.ask(HELLO), Ready)
        worker.close()
        assert held.run_script(tmp_path / "script.py", [], 300) == 8
    finally:
        held.close()


def test_start__worker_that_is_ended__says_by_what(fork_client):
    worker = fork_client.start()
    worker.ask(HELLO)
    os.kill(worker._process.pid, signal.SIGSEGV)
    with pytest.raises(WorkerLostError, match="SIGSEGV"):
        worker.ask(HELLO)
    worker.close()


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param("import sys; sys.exit(3)", 3, id="a status"),
        pytest.param("pass", 0, id="none"),
        pytest.param("1 / 0", 1, id="an error"),
        pytest.param("import sys; sys.exit('told')", 1, id="a message"),
        pytest.param("import os; os._exit(5)", 5, id="at once"),
        pytest.param("import os; os.kill(os.getpid(), 11)", -11, id="a signal"),
        pytest.param("import time; time.sleep(600)", None, id="never"),
        pytest.param(
            "try:\n    import ci_autotest\nexcept ImportError:\n    raise SystemExit(7)", 7, id="this package is hidden"
        ),
        pytest.param("import sys; sys.exit(4 if 'torch' in sys.modules else 0)", 4, id="torch is there"),
        pytest.param("import beside; raise SystemExit(beside.VALUE)", 9, id="a folder of the caller's"),
    ],
)
def test_run_script__gives_its_status(fork_client, tmp_path, text, status):
    script = tmp_path / "script.py"
    script.write_text(text)
    (tmp_path / "beside.py").write_text("VALUE = 9")
    assert fork_client.run_script(script, [str(tmp_path)], 300 if status is not None else 1) == status


def test_start__modules_that_it_will_need__are_imported_once_for_all_later_workers(tmp_path):
    told = tmp_path / "told"
    (tmp_path / "slow.py").write_text(f"open({str(told)!r}, 'a').write('imported ')")
    held = ForkClient({**os.environ, "PYTHONPATH": str(tmp_path)}, Limits(60))
    try:
        held.start(imports=["slow"]).close()
        held.start(imports=["slow"]).close()
    finally:
        held.close()
    assert told.read_text() == "imported "


def test_run_script__import_path__is_that_of_an_isolated_interpreter_and_what_the_caller_adds(tmp_path):
    script, told = tmp_path / "script.py", tmp_path / "told"
    script.write_text(f"import json, sys; open({str(told)!r}, 'w').write(json.dumps(sys.path))")
    held = ForkClient({**os.environ, "PYTHONPATH": "/elsewhere"}, Limits(60))
    try:
        held.start().close()  # A server of workers beside it adds the package to its own path only.
        assert held.run_script(script, ["/beside"], 300) == 0
    finally:
        held.close()
    isolated = python(Project(tmp_path), "-I", "-c", "import json, sys; print(json.dumps(sys.path))")
    assert json.loads(told.read_text()) == [*json.loads(isolated.out), "/beside"]


def test_run_script__what_it_starts__is_ended_with_it(fork_client, tmp_path):
    script, told = tmp_path / "script.py", tmp_path / "pid"
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(told)!r}, 'w').write(str(child.pid))\n"
    )
    assert fork_client.run_script(script, [], 300) == 0
    assert wait_until(lambda: not is_alive(int(told.read_text())), 60)


def test_run_script__child_that_leaves_its_session__is_ended_with_it(fork_client, tmp_path):
    adopt()
    script, told = tmp_path / "script.py", tmp_path / "pid"
    script.write_text(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    open({str(told)!r} + '.new', 'w').write(str(os.getpid()))\n"
        f"    os.rename({str(told)!r} + '.new', {str(told)!r})\n"
        "    time.sleep(600)\n"
        f"while not os.path.exists({str(told)!r}):\n"
        "    time.sleep(0.01)\n"
    )
    assert fork_client.run_script(script, [], 300) == 0
    assert not is_alive(int(told.read_text()))


def test_run_script__holds_more_than_its_limit__has_no_status(tmp_path):
    script = tmp_path / "script.py"
    # If nothing ended it, it would end with a status before its time is up.
    script.write_text("import time; held = b'1' * (3 << 30); time.sleep(300)")
    held = ForkClient(os.environ, Limits(60, 2 << 30))
    try:
        assert held.run_script(script, [], 1000) is None
    finally:
        held.close()


def test_start__worker__has_a_token_of_its_own_that_the_system_shows(fork_client):
    workers = [fork_client.start({"CI_AUTOTEST_SEES": "7"}) for _ in range(2)]
    try:
        for worker in workers:
            worker.ask(HELLO)
            shown = [line.split()[0] for line in processes(f"{TOKEN}={worker._token}")]
            assert shown == [str(worker._process.pid)]
    finally:
        for worker in workers:
            worker.close()


def test_start__worker_that_takes_too_much__is_ended():
    held = ForkClient(os.environ, Limits(60, 1 << 20))
    try:
        worker = held.start()
        with pytest.raises(WorkerLostError, match=r"more than its limit of 0\.0 GiB"):
            looked_at(worker)
        worker.close()
    finally:
        held.close()


def test_start__server_of_workers_was_ended__starts_another(fork_client):
    first = fork_client.start()
    first.ask(HELLO)
    keeper = parent_of(first._process.pid)
    os.kill(parent_of(keeper), signal.SIGKILL)
    assert wait_until(lambda: not is_alive(first._process.pid), 60)
    first.close()
    second = fork_client.start()
    assert isinstance(second.ask(HELLO), Ready)
    second.close()


def test_start__package_that_cannot_be_imported__is_told_by_the_worker_itself(tmp_path):
    (tmp_path / "msgspec.py").write_text("raise ImportError('a broken msgspec')")
    held = ForkClient({**os.environ, "PYTHONPATH": str(tmp_path)}, Limits(60))
    try:
        worker = held.start()
        with pytest.raises(WorkerLostError) as lost:
            worker.ask(HELLO)
        assert "a broken msgspec" in lost.value.output
        worker.close()
    finally:
        held.close()


def test_start__preloaded_process_was_ended__starts_another(fork_client):
    fork_client.start().close()
    for process in fork_client._processes:
        process.kill()
        process.wait()
    time.sleep(0.1)
    worker = fork_client.start()
    assert isinstance(worker.ask(HELLO), Ready)
    worker.close()


@pytest.mark.parametrize(
    ("row", "modules"),
    [
        pytest.param({"backend": "torch"}, (), id="torch"),
        pytest.param({"backend": "torch.compile"}, ("torch._dynamo", "torch._inductor.compile_fx"), id="inductor"),
        pytest.param(
            {"backend": "torch.compile", "options": {"backend": "aot_eager"}}, ("torch._dynamo",), id="another compiler"
        ),
        pytest.param({"backend": "ddp"}, RANK_IMPORTS, id="ranks"),
    ],
)
def test_preloaded__what_fresh_processes_of_a_candidate_would_import__is_named(row, modules):
    keys = {key: value for key, value in row.items() if key != "backend"}
    assert preloaded([KINDS[row["backend"]](name="a", **keys)]) == modules


def looked_at(worker: WorkerProcess) -> None:
    """Have a worker set itself up, and look at what it holds."""
    worker.ask(HELLO)
    time.sleep(0.1)
    worker.check()


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - a file of the system's
        return int(file.read().rpartition(")")[2].split()[1])


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - a file of the system's
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
