"""`ci-autotest verify`: two files, one verdict; the candidate is in a sandbox and can only be rejected by what it does."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ci_autotest.verify.verdict import VerifyVerdict, json_schema
from tests.projects import Project, processes, wait_until
from tests.sandboxes import lacking_sandbox
from tests.verify_corpus import CHEATS, HONEST, PROBLEMS

SOFTMAX = "import torch\n\n\ndef f(x):\n    e = torch.exp(x - x.amax(-1, keepdim=True))\n    return e / e.sum(-1, keepdim=True)\n"
ZEROS = "import torch\n\n\ndef f(x):\n    return torch.zeros_like(x)\n"


pytestmark = pytest.mark.skipif(bool(lacking_sandbox()), reason=lacking_sandbox())


def verify(
    folder: Path, kernel: str, *options: str, problem: str = PROBLEMS["softmax"], **environ: str
) -> tuple[int, Any]:
    """Return the status and the verdict of a kernel."""
    project = Project(folder)
    project.write("problem.py", problem)
    project.write("kernel.py", kernel)
    done = project.command("verify", "problem.py", "kernel.py", "--json", *options, environ=environ)
    try:
        verdict = json.loads(done.out)
    except ValueError:
        return done.status, done.said
    assert msgspec.convert(verdict, VerifyVerdict).schema == json_schema()["title"]
    return done.status, verdict


def test_verify__wrong_kernel__is_rejected_with_the_smallest_program_and_public_hides_it(tmp_path: Path):
    status, verdict = verify(tmp_path, ZEROS, "--forward-only", "--seed", "7", CI_AUTOTEST_VERIFY_KEY="key")
    assert (status, verdict["verdict"], verdict["correct"], verdict["hidden"]) == (1, "rejected", False, False), verdict
    assert "found = kernel.f(x)" in verdict["finding"]["program"]
    assert verdict["not_checked"]
    plain = {**verdict, "signature": ""}
    text = msgspec.json.encode(msgspec.convert(plain, VerifyVerdict), order="sorted")
    assert verdict["signature"] == hmac.new(b"key", text, hashlib.sha256).hexdigest()
    status, shown = verify(tmp_path, ZEROS, "--forward-only", "--seed", "7", "--public")
    assert (status, shown["seed"], shown["finding"]["program"], shown["finding"]["message"]) == (1, "", "", "")
    # No number of the hidden case is in what is shown.
    assert verdict["finding"]["program"].partition("torch.tensor(")[2].partition(")")[0] not in json.dumps(shown)


def test_verify__right_kernel__is_accepted_and_its_operators_are_told(tmp_path: Path):
    status, verdict = verify(tmp_path, SOFTMAX)
    assert (status, verdict["verdict"], verdict["hidden"]) == (0, "accepted", True), verdict
    assert verdict["authenticity"] == {
        "authentic": True,
        "calls": ["amax", "exp", "sum"],
        "shared": [],
        "is_unseen": False,
    }
    assert verdict["probes"] > 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["problem.py"], 2, "Missing argument 'CANDIDATE'"),
        (["nothing.py", "kernel.py"], 2, "REFERENCE 'nothing.py' is neither a file nor a module below this folder"),
        (["problem.py", "problem.py"], 2, "REFERENCE and CANDIDATE are the same"),
        (["problem.py", "kernel.py", "--budget", "soon"], 2, "soon"),
    ],
)
def test_verify__wrong_command_line__is_one_message_and_status_2(
    arguments: list[str], status: int, said: str, tmp_path: Path
):
    project = Project(tmp_path)
    project.write("problem.py", PROBLEMS["softmax"])
    project.write("kernel.py", SOFTMAX)
    done = project.command("verify", *arguments)
    assert (done.status, said in done.said) == (status, True), done.said


def test_verify__no_sandbox__is_status_4_and_says_what_to_install(tmp_path: Path):
    project = Project(tmp_path)
    project.write("problem.py", PROBLEMS["softmax"])
    project.write("kernel.py", SOFTMAX)
    done = project.command("verify", "problem.py", "kernel.py", environ={"PATH": str(tmp_path)})
    assert (done.status, "Install it: apt-get install bubblewrap" in done.said) == (4, True), done.said


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("problem", "kernel", "answer", "said"),
    [
        ("softmax", "import nowhere\n", "rejected", "No module named 'nowhere'"),
        ("softmax", "def f(x:\n", "rejected", "SyntaxError"),
        ("softmax", "import os\nos._exit(0)\n", "rejected", "ended with status 0 while it was imported"),
        ("softmax", "print('x' * 10_000_000)\nprint('{}')\n" + SOFTMAX, "accepted", "aligned"),
        ("import torch\n\n\ndef f(x):\n    return x + torch.rand_like(x)\n\n\ndef get_inputs():\n    return [torch.ones(4)]\n",
         "def f(x):\n    return x + 0.5\n", "undecided", ""),
        ("import torch\n\n\ndef f(x):\n    return x\n", SOFTMAX, "undecided", "has no get_inputs()"),
        ("raise RuntimeError('broken')\n", SOFTMAX, "undecided", "the reference cannot be used: RuntimeError: broken"),
        ("softmax", "def g(x):\n    return x\n", 2, "it is not clear what to verify"),
    ],
    ids=["no module", "no Python", "ends at import", "prints", "random", "no inputs", "broken reference", "other name"],
)  # fmt: skip
def test_verify__bad_input__is_one_verdict(problem: str, kernel: str, answer: str | int, said: str, tmp_path: Path):
    status, verdict = verify(tmp_path, kernel, "--forward-only", problem=PROBLEMS.get(problem, problem))
    if isinstance(answer, int):
        assert (status, said in verdict) == (answer, True), verdict
        return
    assert (verdict["verdict"], said in verdict["reason"]) == (answer, True), verdict
    assert status == {"accepted": 0, "rejected": 1, "undecided": 3}[answer]


@pytest.mark.heavy
def test_verify__candidate_looks_around__sees_its_file_and_nothing_of_ours(tmp_path: Path):
    looks = (
        "import os\n\n\ndef first():\n    try:\n        return open('/proc/1/environ').read()\n    except PermissionError:\n        return ''\n\n\nSEEN = {'files': sorted(os.listdir('.')), 'tmp': sorted(os.listdir('/tmp')), 'environ': sorted(os.environ),\n"
        "        'pids': len([p for p in os.listdir('/proc') if p.isdigit()]), 'home': os.path.exists('/root') and os.listdir('/root'),\n"
        "        'first': first(), 'net': os.listdir('/sys/class/net') if os.path.exists('/sys/class/net') else []}\n"
        "raise RuntimeError(str(SEEN))\n"
    )
    _, verdict = verify(tmp_path, looks, UNKNOWN="held")
    seen = verdict["reason"].partition("RuntimeError: ")[2]
    assert "UNKNOWN" not in seen
    assert "problem.py" not in seen
    assert "'net': []" in seen, seen


@pytest.mark.heavy
def test_verify__children_of_the_candidate__are_ended(tmp_path: Path):
    kernel = next(text for name, _, text in CHEATS if name == "a child that goes on")
    verify(tmp_path, kernel.replace("time.sleep(1000)", "os.execvp('sleep', ['sleep', '98765'])"), "--forward-only")
    assert wait_until(lambda: not processes("98765"), 30), processes("98765")


MODEL = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.rand(16, 32)]


def get_init_inputs():
    return [32, 24]
"""
NEW = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.kept = None

    def forward(self, x):
        weight = self.linear.weight
        y = (x[:, None, :].double() * weight[None]).sum(-1).float() + self.linear.bias
        return torch.where(y > 0, y, torch.zeros_like(y))
"""
STALE = NEW.replace(
    "        weight = self.linear.weight\n",
    "        if self.kept is None:\n            self.kept = self.linear.weight.detach().clone()\n        weight = self.kept\n",
)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("kernel", "answer"),
    [(NEW, "accepted"), (STALE, "rejected"), (MODEL.replace("Model(", "ModelNew("), "rejected")],
    ids=["right", "stale weights", "copied"],
)
def test_verify__modules_in_kernelbench_form__weights_are_inputs(kernel: str, answer: str, tmp_path: Path):
    _, verdict = verify(tmp_path, kernel, "--forward-only", problem=MODEL)
    assert verdict["verdict"] == answer, verdict
    if kernel is STALE:
        assert "wrong after 1 earlier call" in verdict["reason"]


@pytest.mark.heavy
@pytest.mark.parametrize("gradient", ["grad * 2, grad", "grad, grad"], ids=["right", "wrong"])
def test_verify__gradients__are_compared(gradient: str, tmp_path: Path):
    kernel = next(text for name, _, text in HONEST if name == "a function of autograd")
    _, verdict = verify(tmp_path, kernel.replace("grad * 2, grad", gradient), problem=PROBLEMS["scale"])
    wrong = gradient == "grad, grad"
    assert verdict["verdict"] == ("rejected" if wrong else "accepted"), verdict
    assert not wrong or verdict["finding"]["kind"] == "gradient"
