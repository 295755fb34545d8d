"""Everything that is decoded, damaged in a thousand ways each: it is refused with one sentence, or goes through whole.

What a worker or a host says is taken up to the report, for what decodes may still be no answer.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ci_autotest import random_tensor
from ci_autotest import torch as recording
from ci_autotest.backends.framework import backend as remote_backend
from ci_autotest.backends.framework.backend import Channel
from ci_autotest.backends.framework.process import HostLostError
from ci_autotest.backends.framework.response import about_of
from ci_autotest.backends.registry import build
from ci_autotest.commands.downloaded_report import read_downloaded
from ci_autotest.commands.draws import asked_for
from ci_autotest.commands.output_writer import setting_for, write_surfaces
from ci_autotest.commands.report import report
from ci_autotest.commands.request import hello_for
from ci_autotest.commands.request_parsing import request_of
from ci_autotest.commands.result_text import show_result
from ci_autotest.commands.run_result import Circumstances, make_result
from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.errors import AutotestError, ConfigError, OutputError, ProgramError, PublishError, UsageError
from ci_autotest.findings.database import Database
from ci_autotest.findings.tools import Tools
from ci_autotest.findings.triage import Triage
from ci_autotest.github import artifact, comment, origin
from ci_autotest.github.event import read_event
from ci_autotest.github.http_messages import HttpReply, decoded, reason_of
from ci_autotest.kinds import ModuleCandidate
from ci_autotest.program.repro.permissions import Permissions
from ci_autotest.program.serialize import decode
from ci_autotest.report import report_json
from ci_autotest.report.evidence import evidence_of
from ci_autotest.report.finding_files import repro_script
from ci_autotest.report.finding_program import display_program
from ci_autotest.run.frames import decode_from_worker, decode_reply, decode_to_worker, encode
from ci_autotest.run.messages import (
    Broken,
    CasesDone,
    Confirm,
    Discover,
    Discovered,
    Examine,
    Gone,
    Ready,
    Record,
    Replay,
    RunCases,
    WorkerReply,
)
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker.dispatch import Dispatcher
from ci_autotest.values.result import Environment
from tests.archives import zipped
from tests.engine import judged, record
from tests.mutations import COUNT, mutations
from tests.projects import HEAD, Project

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ci_autotest.run.messages import FromWorker, Hello, TestInfo
    from ci_autotest.values.finding import Finding

TESTS = """
@autotest(n=4)
def softmax():
    return torch.nn.functional.softmax(random_tensor(ndim=2, dim0=3, dim1=3), dim=1)

@autotest(n=4)
def sigmoid():
    return torch.sigmoid(random_tensor(ndim=1, dim0=3))
"""
KERNELS = """
import torch

def softmax(x, dim, **more):
    return torch.Tensor.softmax(x, dim) * 1.01
"""
ROWS = {
    "tolerances": [{"operator": "torch.nn.functional.conv*", "dtype": "float16", "rtol": 2e-3, "atol": 1e-4, "reason": "é"}],
    "known": [{"operator": "torch.argsort", "candidate": "kernels", "kind": "dtype", "reason": "x", "until": "2027-06-01"}],
    "budget": "10m", "cases": 4, "seed": 3, "workers": 1, "strictness": "tolerance", "memory": "8GiB",
}  # fmt: skip


@dataclass
class Real:
    """A run that was made: its folder, and what its worker is told and says."""

    project: Project
    hello: Hello
    said: dict[str, FromWorker]
    asked: dict[str, Any]

    @property
    def test(self) -> TestInfo:
        found = self.said["Discovered"]
        assert isinstance(found, Discovered)
        return next(test for test in found.tests if test.name == "softmax")

    @property
    def saved(self) -> Path:
        return next((self.project.folder / "autotest-report" / "findings").iterdir())

    @property
    def finding(self) -> Finding:
        return report_json.read(self.project.folder / "autotest-report" / "report.json").findings[0]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    project = Project(tmp_path_factory.mktemp("real"))
    project.substitute({"torch.nn.functional.softmax": "mutated_kernels.softmax"}, **ROWS)
    project.write("mutated_kernels.py", KERNELS)
    project.write("autotests/autotest_mutations.py", HEAD + TESTS)
    done = project.run()
    assert done.status == 1, done.said
    hello = hello_for(request_of((), {}, project.folder), 0)
    dispatcher = Dispatcher(ProgressBeacon.create(), lambda part: None)
    said: dict[str, FromWorker] = {"Ready": dispatcher.answer(hello)}
    said["Discovered"] = found = dispatcher.answer(Discover("autotests/autotest_mutations.py"))
    assert isinstance(found, Discovered)
    test = next(test for test in found.tests if test.name == "softmax")
    asked: dict[str, Any] = {
        "CasesDone": RunCases(test=test, cases=[0, 1, 2, 3], candidates=["kernels"]),
        "Confirm": Confirm(test=test, case=0, attempt=0, candidate="kernels", twice=True),
        "Record": Record(test=test, case=0, attempt=None, candidate="kernels"),
        "Examined": Examine(candidate="kernels", operators=["torch.nn.functional.softmax"]),
    }
    asked["Replayed"] = Replay(candidate="kernels", runs=[asked["CasesDone"]])
    said |= {name: dispatcher.answer(message) for name, message in asked.items()}
    said["Broken"] = Broken(message="own é", traceback="in line 3")
    return Real(project, hello, said, {**asked, "Hello": hello})


def tried(data: bytes, read: Callable[[bytes], object], *refusals: type[Exception], count: int = COUNT) -> None:
    """Read every mutation: what is raised besides refusals is told with its number."""
    seed, said = 19, []
    for number, damaged in enumerate(mutations(data, seed, count)):
        try:
            read(damaged)
        except refusals as error:
            said.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends a command with status 70
            pytest.fail(f"mutation {number} of seed {seed} raised {type(error).__name__}: {error}\n{damaged[:2000]!r}")
    print(f"seed {seed}: {count} mutations, {len(said)} refused")  # noqa: T201 - which ones they were
    assert all(said)
    assert len(said) >= count // 10 or not refusals


WORKER = ["Ready", "Discovered", "CasesDone", "Confirm", "Record", "Replayed", "Examined", "Broken"]


@pytest.mark.parametrize("name", WORKER)
def test_decode_from_worker__mutated__is_a_message_or_refused(real: Real, name: str):
    tried(encode(real.said[name]), decode_from_worker, msgspec.DecodeError)


@pytest.mark.parametrize("name", ["Hello", "CasesDone", "Confirm", "Record", "Replayed", "Examined"])
def test_decode_to_worker__mutated__is_a_message_or_refused(real: Real, name: str):
    tried(encode(real.asked[name]), decode_to_worker, msgspec.DecodeError)


def test_decode_reply__mutated__is_a_reply_or_refused(real: Real):
    gone = Gone(reason="ended", spot=(1, 2, 3, 4, 5), output="é", limit="", is_killed=False)
    tried(encode(WorkerReply(bodies=[encode(real.said["Broken"])], gone=gone)), decode_reply, msgspec.DecodeError)


class TurnedDownError(Exception):
    """The slot refuses what is no answer to what was asked."""


def reported(real: Real, ready: FromWorker, done: FromWorker, output: Path) -> None:
    """Take what a worker says up to the report, as the slot lets it through."""
    if not isinstance(ready, Ready) or not isinstance(done, CasesDone) or not set(range(4)).issuperset(done.done):
        message = "sent an answer to no request"
        raise TurnedDownError(message)
    found = real.said["Discovered"]
    assert isinstance(found, Discovered)
    ledger = Ledger([(test, range(4)) for test in found.tests], ("kernels",))
    ledger.part(real.test.id, done)
    triage = Triage(left=ledger.suspects())
    tools = Tools(None, None, real.hello, output, (), 0, {})  # type: ignore[arg-type] - nothing is run
    triage.tell_as_seen(tools)
    told = Circumstances(
        seed=0, environment=Environment(ci_autotest="1", python="3", platform="x"), candidates=tuple(ready.candidates),
        shard=(1, 1), shapes=0, interrupted=False, notes=(), broken=(), baseline=None, fail_on="misaligned",
        is_partial=not ledger.is_complete, duration_s=1.0,
    )  # fmt: skip
    result = make_result(ledger, tuple(triage.findings), told)
    write_surfaces(result, output, setting_for(result, output, {}, Permissions(), is_own=True))
    show_result(result, io.StringIO(), str(output))


def test_ledger__cases_of_a_mutated_message__are_reported(real: Real, tmp_path: Path):
    tried(
        encode(real.said["CasesDone"]),
        lambda data: reported(real, real.said["Ready"], decode_from_worker(data), tmp_path),
        msgspec.DecodeError, TurnedDownError,
    )  # fmt: skip


def test_ledger__candidates_of_a_mutated_message__are_reported(real: Real, tmp_path: Path):
    tried(
        encode(real.said["Ready"]),
        lambda data: reported(real, decode_from_worker(data), real.said["CasesDone"], tmp_path),
        msgspec.DecodeError, TurnedDownError,
    )  # fmt: skip


def body() -> object:
    x = random_tensor(ndim=2, dim0=3, dim1=4)
    layer = recording.nn.Linear(4, 2)
    return recording.nn.functional.softmax(layer(recording.sigmoid(x)), dim=1), recording.max(x, 1)


class Retelling:
    """A host in whose place frames that were heard are told again, the first of them damaged."""

    def __init__(self, hello: object, frames: list[tuple[bytes, list[bytes]]]) -> None:
        self.hello, self._frames, self._told = hello, frames, 0

    def send(self, message: object, buffers: object = ()) -> None:
        """Hear nothing."""

    def is_ready(self, wait_s: float) -> bool:
        return True

    def in_flight(self) -> tuple[int, int]:
        return 0, 0

    def receive(self) -> tuple[bytes, list[memoryview]]:
        head, buffers = self._frames[min(self._told, len(self._frames) - 1)]
        self._told += 1
        return head, [memoryview(buffer) for buffer in buffers]

    def close(self) -> None:
        """Hold nothing."""


def test_remote__answer_of_a_host_is_mutated__is_read_or_the_host_is_lost(monkeypatch: pytest.MonkeyPatch):
    backend = build(ModuleCandidate(name="torch", module="torch"), "cpu")
    assert isinstance(backend, remote_backend.RemoteBackend)
    host, frames = backend._host, []
    received = host.receive
    monkeypatch.setattr(host, "receive", lambda: frames.append(received()) or frames[-1])
    assert judged(record(body), backend).verdict.outcome == "aligned"
    host.close()
    whole = [(head, [bytes(buffer) for buffer in buffers]) for head, buffers in frames]

    def read(head: bytes) -> None:
        received = Retelling(host.hello, [(head, whole[0][1]), *whole[1:]])
        monkeypatch.setattr(backend, "_start", lambda _: received)
        backend._host, backend._channel = received, Channel(received)  # type: ignore[assignment, arg-type]
        attempt = record(body)
        trace = backend.run(attempt.program, attempt.sources)
        backend.backward(attempt.program, trace, attempt.cotangents)

    tried(whole[0][0], read, HostLostError)


def test_about_of__mutated__is_an_answer_or_refused():
    tried(b'{"has":[true,false],"devices":["cpu","cuda:0"]}', lambda data: about_of(data, 2), AutotestError)


@pytest.mark.heavy  # PyYAML looks a thousand characters ahead at each level of what is nested deeply
def test_request_of__mutated_configuration__is_refused_or_checked(real: Real, tmp_path: Path):
    file = tmp_path / "autotest.yml"

    def read(data: bytes) -> None:
        file.write_bytes(data)
        request_of((), {}, tmp_path)

    text = (real.project.folder / "autotest.yml").read_bytes()
    plain = {
        "candidates": [{"name": "kernels", "backend": "substitute", "replace": {"torch.exp": "kernels.exp"}}],
        **ROWS,
    }
    for whole in (text, json.dumps(plain).encode()):
        read(whole)
    tried(text, read, ConfigError, UsageError, count=COUNT * 3 // 4)
    # YAML too: its values are exchanged.
    tried(json.dumps(plain).encode(), read, ConfigError, UsageError, count=COUNT // 4)


def test_parsed__mutated_report__is_refused_or_merged(real: Real, tmp_path: Path):
    part, output = tmp_path / "part", tmp_path / "whole"
    part.mkdir()

    def read(data: bytes) -> None:
        (part / "report.json").write_bytes(data)
        show_result(report((part,), output, "misaligned", (str(part), ""), {}), io.StringIO(), str(output))

    tried((real.project.folder / "autotest-report" / "report.json").read_bytes(), read, OutputError, UsageError)


def test_read_downloaded__mutated_archive__is_refused_or_read(real: Real):
    whole = real.project.folder / "autotest-report"
    files = {str(path.relative_to(whole)): path.read_bytes() for path in whole.rglob("*") if path.is_file()}

    def read(data: bytes) -> None:
        downloaded = read_downloaded("report", io.BytesIO(data))
        for finding in downloaded.result.findings:
            downloaded.source(finding)

    tried(zipped(files), read, PublishError, OutputError)


def printed(real: Real, program: bytes, tensors: bytes) -> None:
    """Read a saved program, and print it in every form that there is."""
    finding = real.finding
    assert evidence_of(finding, program, None)
    assert evidence_of(finding, program, tensors)
    found = decode(program, tensors)
    display_program(found, finding)
    repro_script(found, finding, real.saved, (), 60.0)


def test_decode__mutated_program__is_refused_or_printed(real: Real):
    tensors = (real.saved / "tensors.safetensors").read_bytes()
    tried((real.saved / "program.json").read_bytes(), lambda data: printed(real, data, tensors), ProgramError)


def test_decode__mutated_tensors__are_refused_or_printed(real: Real):
    program = (real.saved / "program.json").read_bytes()
    tried((real.saved / "tensors.safetensors").read_bytes(), lambda data: printed(real, program, data), ProgramError)


def test_database__mutated_durations__are_left_out_and_told(real: Real, tmp_path: Path):
    def read(data: bytes) -> None:
        (tmp_path / "durations.json").write_bytes(data)
        database = Database(tmp_path)
        assert not (database.durations() and database.notes)

    tried((real.project.folder / ".autotest" / "durations.json").read_bytes(), read)


def test_database__mutated_entry__is_left_out_and_told(real: Real, tmp_path: Path):
    (kept,) = Database(real.project.folder / ".autotest").findings()
    Database(tmp_path).save({}, [kept])
    file = tmp_path / "findings" / kept.entry.id / "entry.json"
    whole = file.read_bytes()

    def read(data: bytes) -> None:
        file.write_bytes(data)
        database = Database(tmp_path)
        assert len(database.findings()) + len(database.notes) == 1

    tried(whole, read)


def test_asked_for__mutated_log_of_draws__is_refused_or_read(tmp_path: Path):
    file = tmp_path / "log"
    log = b"test = 'a.py::t'\nseed = 3\ncase = 4\n# profile: ordinary\n0.ndim = 2  # int of [1, 5)\n1.value = -0.5\n1.on = True\n"

    def read(data: bytes) -> None:
        file.write_bytes(data)
        asked_for(None, 0, (), file, 0)

    tried(log, read, UsageError)


HEADS = {
    "sha": "ab" * 20,
    "ref": "softmax",
    "repo": {"full_name": "octo/kernels", "fork": False, "owner": {"login": "octo"}},
}
PULL = {
    "id": 3, "number": 12, "state": "open", "title": "é", "head": HEADS, "merge_commit_sha": None,
    "base": {"ref": "main", "sha": "cd" * 20, "repo": {"full_name": "octo/kernels", "owner": {"login": "octo"}}},
}  # fmt: skip
RUN = {
    "id": 77, "run_attempt": 3, "head_sha": "ab" * 20, "head_branch": "softmax", "pull_requests": [{"number": 6}],
    "head_repository": {"full_name": "octo/kernels", "owner": {"login": "octo"}},
}  # fmt: skip
COMMENT = {"id": 5, "html_url": "https://github.com/octo/kernels/pull/12#5", "user": {"login": "x[bot]"}, "body": "é"}
ARTIFACT = {
    "id": 9, "name": "ci-autotest-report", "expired": False, "digest": f"sha256:{'0' * 64}",
    "workflow_run": {"id": 77, "repository_id": 1, "head_repository_id": 1, "head_branch": "main"},
}  # fmt: skip
ANSWERS: Mapping[str, tuple[object, msgspec.json.Decoder[Any]]] = {
    "run": (RUN, origin.RUN),
    "pull": (PULL, origin.PULL),
    "pulls": ([PULL], origin.PULLS),
    "comment": (COMMENT, comment._COMMENT),
    "comments": ([COMMENT], comment._COMMENTS),
    "user": ({"login": "x[bot]"}, comment._USER),
    "artifacts": ({"total_count": 1, "artifacts": [ARTIFACT]}, artifact._PAGE),
}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_decoded__mutated_answer_of_github__is_read_or_refused(name: str):
    plain, decoder = ANSWERS[name]

    def read(data: bytes) -> None:
        reply = HttpReply(status=200, headers={"content-type": "application/json"}, body=data)
        reason_of(reply)
        decoded("GET /x", reply, decoder)

    whole = json.dumps(plain).encode()
    read(whole)
    tried(whole, read, PublishError)


EVENTS = {
    "pull_request": {"action": "opened", "pull_request": PULL},
    "workflow_run": {"action": "completed", "workflow_run": RUN},
    "issue_comment": {"issue": {"number": 12, "pull_request": {"url": "https://api.github.com/x"}}},
}


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_read_event__mutated_file__is_read_or_refused(name: str, tmp_path: Path):
    file = tmp_path / "event.json"
    environ = {
        "GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(file), "GITHUB_REPOSITORY": "octo/kernels",
        "GITHUB_TOKEN": "ghs_secret", "GITHUB_RUN_ID": "77", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_SHA": "ab" * 20,
    }  # fmt: skip

    def read(data: bytes) -> None:
        file.write_bytes(data)
        read_event(environ)

    whole = json.dumps(EVENTS[name]).encode()
    read(whole)
    tried(whole, read, PublishError)
