"""`ci-autotest serve`: verdicts from a process that has torch and sandboxes ready, over HTTP and MCP; `run --warm`."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Project, wait_until
from tests.sandboxes import lacking_sandbox
from tests.services import RunningService
from tests.verify_corpus import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(lacking_sandbox()), reason=lacking_sandbox())

RIGHT = "import torch\n\n\ndef f(x):\n    e = torch.exp(x - x.amax(-1, keepdim=True))\n    return e / e.sum(-1, keepdim=True)\n"
ZEROS = "import torch\n\n\ndef f(x):\n    return torch.zeros_like(x)\n"
TEXTS = {"reference_text": PROBLEMS["softmax"], "candidate_text": RIGHT, "forward_only": True}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    running = RunningService(tmp_path_factory.mktemp("service"))
    yield running
    if running.process.poll() is None:
        running.end()


def test_verify__texts_of_two_files__are_judged_one_after_the_other(service: RunningService):
    status, accepted = service.post("/verify", TEXTS)
    assert (status, accepted["verdict"], accepted["sandbox"]) == (200, "accepted", "bubblewrap"), accepted
    status, rejected = service.post("/verify", {**TEXTS, "candidate_text": ZEROS, "public": True})
    assert (status, rejected["verdict"], rejected["seed"]) == (200, "rejected", ""), rejected


def test_verify__many_at_once__each_get_their_own_verdict(service: RunningService):
    found: dict[int, tuple[int, Any]] = {}

    def ask(number: int) -> None:
        found[number] = service.post("/verify", {**TEXTS, "candidate_text": ZEROS if number % 2 else RIGHT})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    verdicts = [found[number][1]["verdict"] for number in range(4)]
    assert verdicts == ["accepted", "rejected", "accepted", "rejected"], found


@pytest.mark.parametrize(
    ("path", "document", "status", "said"),
    [
        ("/verify", {"references": "a.py"}, 400, "Object contains unknown field `references`"),
        ("/verify", {"reference": "a.py"}, 400, "give either 'candidate', a file, or 'candidate_text', its text."),
        ("/verify", {**TEXTS, "reference": "a.py"}, 400, "give either 'reference', a file, or 'reference_text'"),
        ("/verify", {"reference": "no.py", "candidate": "no.py"}, 400, "REFERENCE 'no.py' is neither a file nor a module"),
        ("/verify", {**TEXTS, "budget": "soon"}, 400, "budget is 'soon', which is not a duration"),
        ("/verify", {**TEXTS, "candidate_text": "def g(x): return x"}, 400, "it is not clear what to verify"),
        ("/verify", b"{", 400, "the request is no JSON"),
        ("/replay", {"finding": "nowhere"}, 400, "'nowhere' holds no program.json"),
        ("/explain", {"finding": "nowhere"}, 400, "nowhere"),
        ("/else", {}, 404, "Post to /explain, /replay, /verify."),
    ],
    ids=["field", "one side", "twice", "no file", "budget", "name", "no JSON", "replay", "explain", "path"],
)  # fmt: skip
def test_request__that_cannot_be_answered__is_one_sentence(
    service: RunningService, path: str, document: Any, status: int, said: str
):
    found, answer = service.post(path, document)
    assert (found, said in answer["error"]) == (status, True), answer


def test_request__of_another_user__is_refused(service: RunningService):
    assert service.post("/verify", TEXTS, "wrong")[0] == 401


def test_request__larger_than_allowed__is_refused_before_it_is_read(service: RunningService):
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=30)
    head = {"Authorization": f"Bearer {service.token}", "Content-Length": str(1 << 23)}
    with contextlib.closing(connection):
        connection.request("POST", "/verify", headers=head)
        assert connection.getresponse().status == 413


def test_verify__servers_were_killed__are_begun_anew(service: RunningService):
    killed = service.children()
    assert len(killed) > 1
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert service.post("/verify", TEXTS)[1]["verdict"] == "accepted"


def test_run__warm__takes_its_processes_from_the_service(service: RunningService, tmp_path: Path):
    project = Project(tmp_path)
    project.write("mine.py", "import torch\n\n\ndef exp(x):\n    return torch.exp(x) + (x > 0)\n")
    project.configure(candidates=[{"name": "mine", "backend": "substitute", "replace": {"torch.exp": "mine.exp"}}])
    project.tests("@autotest(n=3)\ndef exp():\n    return torch.exp(random_tensor(ndim=1))\n")
    environ = {"XDG_RUNTIME_DIR": str(service.folder)}
    done = project.command("run", "--warm", environ=environ)
    assert (done.status, "no service" in done.err) == (1, False), done.said
    assert project.report()["findings"][0]["repro_verified"]


def test_run__warm_without_a_service__says_so_and_runs(tmp_path: Path):
    project = Project(tmp_path)
    project.tests("@autotest(n=1)\ndef exp():\n    return torch.exp(random_tensor(ndim=1))\n")
    done = project.command("run", "--warm", "--candidate", "torch", environ={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert (done.status, "no service of this version runs here" in done.err) == (0, True), done.said


def test_serve__ended__leaves_nothing(tmp_path: Path):
    running = RunningService(tmp_path, "--jobs", "2")
    time.sleep(1)
    started = [Path(f"/proc/{pid}") for pid in running.children()]
    assert len(started) == 3  # the fork server, and two sandboxes
    assert running.end() == 0
    assert wait_until(lambda: not any(path.exists() for path in started), 20)


@pytest.mark.heavy
def test_serve__mcp_over_stdio__has_its_tools(tmp_path: Path):
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 - its import takes a second

    (tmp_path / "reference.py").write_text(PROBLEMS["softmax"])
    (tmp_path / "kernel.py").write_text(ZEROS)
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "ci_autotest", "serve", "--mcp", "stdio"], cwd=tmp_path,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )  # fmt: skip

    async def talk() -> tuple[list[str], Any, Any]:
        async with Client(parameters) as client:
            tools = sorted(tool.name for tool in (await client.list_tools()).tools)
            given = {"reference": "reference.py", "candidate": "kernel.py", "forward_only": True}
            verdict = await client.call_tool("verify", given)
            wrong = await client.call_tool("verify", {"reference": "reference.py"})
            return tools, verdict, wrong

    tools, verdict, wrong = asyncio.run(talk())
    assert tools == ["explain", "replay", "verify"]
    assert json.loads(verdict.content[0].text)["verdict"] == "rejected"
    assert (wrong.is_error, "give either 'candidate'" in wrong.content[0].text) == (True, True)
