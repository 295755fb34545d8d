"""``replay``: a finding's saved program, run again; a program that is damaged or edited, refused before it runs."""

from __future__ import annotations

import json
import pickle  # noqa: TID251 - the attack that is planted
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Project

if TYPE_CHECKING:
    from collections.abc import Callable

REPLACE = {"torch.nn.functional.softmax": "mykernels.softmax"}
WRONG = """
import torch


def softmax(x, dim, dtype=None):
    return torch.exp(x) / torch.exp(x).sum(dim, keepdim=True) * 1.5
"""
RIGHT = WRONG.replace(" * 1.5", "")
SOFTMAX = """
@autotest(n=2)
def softmax():
    return torch.nn.functional.softmax(random_tensor(ndim=2) * 2, dim=1)
"""
CANARY = "canary"


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose one finding is in ``finding/``."""
    project = Project(tmp_path_factory.mktemp("found"))
    project.substitute(REPLACE)
    project.write("mykernels.py", WRONG)
    project.tests(SOFTMAX)
    done = project.run()
    assert done.status == 1, done.said
    (finding,) = project.report()["findings"]
    shutil.copytree(project.folder / "autotest-report" / "findings" / finding["id"], project.folder / "finding")
    return project.folder


@pytest.fixture
def project(found: Path, tmp_path: Path) -> Project:
    return Project(Path(shutil.copytree(found, tmp_path / "project")))


def edited(project: Project, edit: Callable[[dict[str, Any]], None]) -> None:
    path = project.folder / "finding" / "program.json"
    program = json.loads(path.read_text("utf-8"))
    edit(program)
    path.write_text(json.dumps(program), "utf-8")


def call_of(program: dict[str, Any]) -> dict[str, Any]:
    (call,) = [step for step in program["body"] if step["op"].startswith("call")]
    return call


def test_replay__finding__is_misaligned_until_the_kernel_is_fixed(project: Project):
    before = project.command("replay", "finding")
    project.write("mykernels.py", RIGHT)
    after = project.command("replay", "finding")
    assert (before.status, before.err) == (1, "")
    assert before.out.startswith(
        "misaligned: torch.nn.functional.softmax on kernels: value of softmax is off by up to 0.5\n"
        "  differs: value of softmax: 1 / 1 element (100 %)\n"
        "  candidate: float32[1, 1] on cpu\n"
        "  reference: float32[1, 1] on cpu\n"
        "  greatest difference: absolute 0.5 at [0, 0], relative 0.5"
    ), before.out
    assert (after.status, after.out, after.err) == (0, "aligned on kernels\n", "")


def test_replay__file_of_the_folder__is_the_folder(project: Project):
    done = project.command("replay", "finding/program.json")
    assert (done.status, done.out.partition(":")[0]) == (1, "misaligned")


def test_replay__kernel_that_ends_its_process__says_so(project: Project):
    project.write("mykernels.py", "import os\n\n\ndef softmax(*args, **kwargs):\n    os.abort()\n")
    done = project.command("replay", "finding")
    assert (done.status, done.out.splitlines()[0]) == (1, "crashed: the worker ended by signal 6 (SIGABRT)")


def test_replay__kernel_that_hangs__is_ended_after_the_case_timeout(project: Project):
    project.write("mykernels.py", "import time\n\n\ndef softmax(*args, **kwargs):\n    time.sleep(600)\n")
    project.substitute(REPLACE, case_timeout="1s")
    done = project.command("replay", "finding")
    assert (done.status, done.out.splitlines()[0]) == (
        1,
        "timed out: the worker made no progress for 1 s and was ended",
    )


def test_replay__kernels_module_is_missing__is_unavailable(project: Project):
    (project.folder / "mykernels.py").unlink()
    done = project.command("replay", "finding")
    assert done.status == 4
    assert done.err.startswith("candidate 'kernels' is not available: replacement 'mykernels.softmax'")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        pytest.param(
            lambda program: call_of(program).update(target="os.system", args=[f"touch {CANARY}"], kwargs=[]),
            "step 1 names target 'os.system', which is not on the allow list of call_function: "
            "only operators of torch are run.",
            id="os.system",
        ),
        pytest.param(
            lambda program: call_of(program).update(target="torch.load", args=["evil.pt"], kwargs=[]),
            "step 1 names target 'torch.load', which is not on the allow list of call_function: "
            "only operators of torch are run.",
            id="torch.load",
        ),
        pytest.param(
            lambda program: call_of(program).update(
                target="builtins.eval", args=[f"open('{CANARY}', 'w').close()"], kwargs=[]
            ),
            "step 1 names target 'builtins.eval', which is not on the allow list of call_function: "
            "only operators of torch are run.",
            id="builtins.eval",
        ),
        pytest.param(
            lambda program: call_of(program).update(target="torch.nn.functional.warnings.sys", args=[], kwargs=[]),
            "step 1 names target 'torch.nn.functional.warnings.sys', which is not on the allow list of call_function: "
            "only operators of torch are run.",
            id="through a module",
        ),
        pytest.param(
            lambda program: call_of(program).update(op="call_method", target="tofile", args=[{"ref": 0}, CANARY]),
            "step 1 names target 'tofile', which is not on the allow list of call_method: "
            "only operators of torch are run.",
            id="method that writes",
        ),
        pytest.param(
            lambda program: call_of(program).update(
                target="builtins.getattr", args=[{"ref": 0}, "__class__"], kwargs=[]
            ),
            "step 1 names target 'builtins.getattr', which is not on the allow list of call_function: "
            "only operators of torch are run.",
            id="attribute",
        ),
        pytest.param(
            lambda program: call_of(program).update(args=[{"ref": 7}]),
            "step 1 refers to step 7, which is not before it.",
            id="reference forward",
        ),
        pytest.param(
            lambda program: call_of(program).update(args=[{"code": "1"}]),
            "program.json holds an argument of an unknown kind: \"{'code': '1'}\".",
            id="unknown argument",
        ),
        pytest.param(
            lambda program: program["body"].pop(),
            "the program has no output: its last step must be one.",
            id="no output",
        ),
        pytest.param(
            lambda program: program.update(schema="ci-autotest/program/9"),
            "program.json has schema 'ci-autotest/program/9'; this version reads 'ci-autotest/program/1'.",
            id="schema",
        ),
        pytest.param(
            lambda program: program["note"].update(candidate="elsewhere"),
            "the program was saved for candidate 'elsewhere', which is unknown here; known: kernels. Give --config or --candidate.",
            id="candidate",
        ),
        pytest.param(
            lambda program: program["body"][0]["args"][0]["tensor"].update(shape=[4, 4], strides=[4, 1]),
            "placeholder 't0' reaches element 15 of a storage of 1.",
            id="view out of its storage",
        ),
    ],
)
def test_replay__edited_program__is_refused_before_anything_runs(
    edit: Callable[[dict[str, Any]], None], message: str, project: Project
):
    canary = project.folder / CANARY
    project.write("mykernels.py", f"open({str(canary)!r}, 'w').close()\n{WRONG}")
    (project.folder / "evil.pt").write_bytes(pickle.dumps(Evil(canary)))
    edited(project, edit)
    done = project.command("replay", "finding")
    assert (done.status, done.out, done.err) == (2, "", f"{message}\n")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("target", "args"),
    [("torch.PyTorchFileWriter", [CANARY]), ("torch.nn.functional.nothing_like_it", [{"ref": 0}])],
)
def test_replay__name_that_is_no_operator_of_this_torch__is_refused(target: str, args: list[Any], project: Project):
    edited(project, lambda program: call_of(program).update(target=target, args=args, kwargs=[]))
    done = project.command("replay", "finding")
    assert (done.status, done.out) == (2, "")
    assert "has no operator" in done.err
    assert target in done.err
    assert not (project.folder / CANARY).exists()


@pytest.mark.parametrize("name", ["program.json", "tensors.safetensors"])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.98])
def test_replay__truncated_file__is_refused(kept: float, name: str, project: Project):
    path = project.folder / "finding" / name
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    done = project.command("replay", "finding")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(
        "program.json is damaged or edited: " if name == "program.json" else "the tensor file is damaged or truncated: "
    ), done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["program.json", "tensors.safetensors"])
def test_replay__folder_without_a_file__says_which(name: str, project: Project):
    (project.folder / "finding" / name).unlink()
    done = project.command("replay", "finding")
    assert (done.status, done.err) == (2, f"'finding' holds no {name}. Give the folder of a finding.\n")


def test_replay__other_kind_of_candidate__is_refused(project: Project):
    project.configure(candidates=[{"name": "kernels", "backend": "torch"}])
    done = project.command("replay", "finding")
    assert (done.status, done.err) == (
        2,
        "candidate 'kernels' has the backend torch here and 'substitute' in the program. "
        "Give the --config of the run that saved it.\n",
    )
