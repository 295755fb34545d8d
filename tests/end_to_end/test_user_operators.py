"""Operators of the user's: functions, classes of modules and entries of torch.ops, replaced, found, and run alone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.projects import Project, outcomes

REFS = """
import torch


def swiglu(x, gate):
    return torch.nn.functional.silu(x) * gate


def wipe(x):
    open("canary", "w").close()
    return x


class Gate(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.left, self.right = torch.nn.Linear(size, size), torch.nn.Linear(size, size)

    def forward(self, x):
        return torch.sigmoid(self.left(x)) * self.right(x)
"""
FAST = """
import torch


def swiglu(x, gate):
    return x * torch.sigmoid(1.01 * x) * gate


class Gate(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.both, self.size = torch.nn.Linear(size, 2 * size), size

    def forward(self, x):
        left, right = self.both(x).split(self.size, -1)
        return torch.sigmoid(left) * right * 1.01


def copy_gate(module, state):
    for name in ("weight", "bias"):
        getattr(module.both, name).copy_(torch.cat([state[f"left.{name}"], state[f"right.{name}"]]))
"""
OPS = """
import torch

library = torch.library.Library("myops", "DEF")
for name, factor in (("swiglu", 1.0), ("swiglu_fast", 1.01)):
    library.define(f"{name}(Tensor x, Tensor gate) -> Tensor")
    call = lambda x, gate, factor=factor: x * torch.sigmoid(factor * x) * gate
    library.impl(name, call, "CompositeImplicitAutograd")
"""
FUNCTION = """
from refs import swiglu


@autotest(n=4, profiles=())
def gated():
    x = random_tensor(2, 3, 4, low=1, high=2)
    return torch.relu(swiglu(x, random_tensor(2, 3, 4, low=1, high=2)))
"""
REGISTERED = """
import torch as plain
import myops


@autotest(n=4, profiles=())
def gated():
    x = random_tensor(2, 3, 4, low=1, high=2)
    return torch.ops.myops.swiglu(x, x) + plain.ops.myops.swiglu.default(x, x)
"""
MODULE = """
from refs import Gate


@autotest(n=4, profiles=())
def gated():
    return Gate(3)(random_tensor(2, 2, 3))
"""
KINDS = {
    "function": (FUNCTION, {"refs.swiglu": "fast.swiglu"}, {}),
    "isolated": (FUNCTION, {"refs.swiglu": "fast.swiglu"}, {"isolated": True}),
    "torch.ops": (REGISTERED, {"torch.ops.myops.swiglu": "torch.ops.myops.swiglu_fast"}, {"import": ["myops"]}),
    "class": (MODULE, {"refs.Gate": "fast.Gate"}, {"state": {"refs.Gate": "fast.copy_gate"}}),
}


def written(folder: Path, body: str, replace: dict[str, str], keys: dict[str, Any]) -> Project:
    project = Project(folder)
    row = {"name": "kernels", "backend": "substitute", "replace": replace, **keys}
    project.configure(candidates=[row])
    for name, text in {"refs": REFS, "fast": FAST, "myops": OPS}.items():
        project.write(f"{name}.py", text)
    project.tests(body)
    return project


@pytest.mark.parametrize(("body", "replace", "keys"), KINDS.values(), ids=KINDS)
def test_run__operator_of_the_users__is_found_by_its_path_and_shown_alone(
    tmp_path: Path, body: str, replace: dict[str, str], keys: dict[str, Any]
):
    project = written(tmp_path, body, replace, keys)
    done = project.run()
    report = project.report()
    (finding,) = report["findings"]
    assert finding["operator"] == next(iter(replace))
    assert (done.status, finding["kind"], finding["blame"], finding["repro_verified"]) == (
        1,
        "value",
        "candidate",
        True,
    )
    assert finding["steps"] == 1
    alone = project.repro(finding)
    assert alone.status == 1, alone.said
    (project.folder / "fast.py").write_text(FAST.replace("1.01", "1.0"), "utf-8")
    (project.folder / "myops.py").write_text(OPS.replace("1.01", "1.0"), "utf-8")
    assert project.repro(finding).status == 0
    assert project.run().status == 0
    own = project.report()["coverage"][0]["own"]
    assert (own["tested"], own["aligned"]) == (1, 1)
    assert project.report()["coverage"][0]["counts"]["public"] == report["coverage"][0]["counts"]["public"]


def test_run__decorated_operator_of_the_test_file__is_one_step_that_a_compiler_compiles(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[
        {"name": "compiled", "backend": "torch.compile", "options": {"backend": "aot_eager", "fullgraph": True}}
    ])  # fmt: skip
    project.tests(
        "from ci_autotest import operator\n\n\n@operator\ndef gate(x, scale):\n    return torch.sigmoid(x) * scale\n\n\n"
        "@autotest(n=4)\ndef gated():\n    return gate(random_tensor(2, 3, 4), 2.0)\n"
    )
    done = project.run()
    assert done.status == 0, done.said
    assert [item["operator"] for item in project.report()["operators"]] == ["autotest_all.gate"]


def test_run__class_whose_state_does_not_fit__is_not_compared_and_says_what_to_write(tmp_path: Path):
    project = written(tmp_path, MODULE, {"refs.Gate": "fast.Gate"}, {})
    done = project.run()
    assert done.status == 3, done.said
    assert outcomes(project.report()) == {("gated", "kernels"): "unsupported"}
    assert "Name a function in `state` that takes the module and the state_dict, and copies it" in done.said


LIBRARY = """
#include <ATen/ATen.h>
#include <torch/library.h>

static at::Tensor swiglu(const at::Tensor& x, const at::Tensor& gate) { return at::silu(x) * gate; }
static at::Tensor fast(const at::Tensor& x, const at::Tensor& gate) { return x * at::sigmoid(x * 1.01) * gate; }

TORCH_LIBRARY(cppops, m) {
    m.def("swiglu(Tensor x, Tensor gate) -> Tensor", swiglu);
    m.def("fast(Tensor x, Tensor gate) -> Tensor", fast);
}
"""


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_run__operator_of_a_library_in_cpp__is_loaded_and_found(tmp_path: Path):
    body = REGISTERED.replace("import torch as plain\nimport myops\n", "").replace(
        " + plain.ops.myops.swiglu.default(x, x)", ""
    )
    replace = {"torch.ops.cppops.swiglu": "torch.ops.cppops.fast"}
    keys = {"load": ["build/libcppops.so"]}
    project = written(tmp_path, body.replace("myops", "cppops"), replace, keys)
    source = project.write("build/cppops.cpp", LIBRARY)
    torch_path = Path(torch.__file__).parent
    folders = [torch_path / "include", torch_path / "include" / "torch" / "csrc" / "api" / "include"]
    subprocess.run(
        ["g++", "-O0", "-std=c++20", "-fPIC", "-shared", str(source), "-o", str(source.parent / "libcppops.so"),
         *(f"-I{folder}" for folder in folders), f"-L{torch_path / 'lib'}", "-ltorch_cpu", "-lc10"],
        check=True,
    )  # fmt: skip
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (done.status, finding["operator"], finding["repro_verified"]) == (1, "torch.ops.cppops.swiglu", True)
    (project.folder / "build" / "libcppops.so").unlink()
    alone = project.repro(finding)
    assert alone.status == 2
    assert "cannot run: " in alone.out


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose one finding is in ``finding/``."""
    project = written(tmp_path_factory.mktemp("found"), *KINDS["function"])
    assert project.run().status == 1
    (finding,) = project.report()["findings"]
    shutil.copytree(project.folder / "autotest-report" / "findings" / finding["id"], project.folder / "finding")
    return project.folder


def renamed(found: Path, folder: Path, target: str) -> Project:
    project = Project(Path(shutil.copytree(found, folder / "project")))
    path = project.folder / "finding" / "program.json"
    program = json.loads(path.read_text("utf-8"))
    for step in program["body"]:
        if step["op"] == "call_function":
            step["target"] = target
    path.write_text(json.dumps(program), "utf-8")
    return project


@pytest.mark.parametrize(
    ("target", "imports"),
    [
        ("refs.wipe", []),
        ("refs.wipe", ["refs"]),  # its module is named, but it is no operator
        ("antigravity.fly", []),
        ("evil.wipe", []),
        ("os.remove", ["os"]),
        ("torch.ops.aten.from_file", []),
        ("torch.ops.load_library", []),
    ],
)
def test_replay__hostile_program__runs_nothing_that_the_configuration_does_not_name(
    found: Path, tmp_path: Path, target: str, imports: list[str]
):
    project = renamed(found, tmp_path, target)
    project.write("evil.py", "open('canary', 'w').close()\n" + REFS)
    row = {"name": "kernels", "backend": "substitute", "replace": {"refs.swiglu": "fast.swiglu"}, "import": imports}
    project.configure(candidates=[row])
    done = project.command("replay", "finding")
    assert (done.status, done.out) == (2, ""), done.said
    assert target in done.err
    assert not (project.folder / "canary").exists()


def test_replay__operator_that_the_configuration_names__is_misaligned(found: Path, tmp_path: Path):
    project = renamed(found, tmp_path, "refs.swiglu")
    done = project.command("replay", "finding")
    assert (done.status, done.out.splitlines()[0][:33]) == (1, "misaligned: refs.swiglu on kernel"), done.said


@pytest.mark.parametrize(
    ("row", "status", "message"),
    [
        (
            {"replace": {"refs.swiglo": "fast.swiglu"}}, 2,
            "candidate 'kernels': replace: operator 'refs.swiglo': module 'refs' has no function or torch.nn.Module "
            "'swiglo'.",
        ),
        (
            {"replace": {"rfes.swiglu": "fast.swiglu"}}, 2,
            "candidate 'kernels': replace: operator 'rfes.swiglu' is none of torch's, and cannot be imported: ",
        ),
        (
            {"replace": {"torch.ops.myops.swiglu": "fast.swiglu"}}, 2,
            "candidate 'kernels': replace: no library registers 'torch.ops.myops.swiglu' with torch. Name the library "
            "in `load`, or the module that registers it in `import`.",
        ),
        (
            {"replace": {"refs.swiglu": "torch.ops.myops.swiglu"}}, 3,
            "replacement 'torch.ops.myops.swiglu' is not registered with torch: no library defines myops::swiglu.",
        ),
        (
            {"replace": {"refs.swiglu": "fast.swiglu"}, "load": ["build/libnothing.so"]}, 3,
            "build/libnothing.so' of `load` cannot be loaded: ",
        ),
        (
            {"replace": {"refs.swiglu": "fast.swiglu"}, "import": ["nothing_here"]}, 3,
            "module 'nothing_here' of `import` cannot be imported: ",
        ),
        (
            {"replace": {"refs.Gate": "fast.swiglu"}}, 3,
            "replacement 'fast.swiglu' of a class of modules is no subclass of torch.nn.Module. Name one.",
        ),
        (
            {"replace": {"refs.Gate": "fast.Gate"}, "isolated": True}, 2,
            "replace: refs.Gate is a class of modules, which `isolated` and `env` do not replace. Remove them.",
        ),
    ],
    ids=["no such function", "no such module", "not registered", "replacement not registered", "library", "import",
         "function for a class", "isolated class"],
)  # fmt: skip
def test_run__name_that_is_none__is_told_in_one_sentence(
    tmp_path: Path, row: dict[str, Any], status: int, message: str
):
    project = written(tmp_path, FUNCTION, row.pop("replace"), row)
    done = project.run()
    assert done.status == status, done.said
    assert message in done.said
