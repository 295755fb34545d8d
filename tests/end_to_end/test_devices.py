"""A device that a package of its own registers with torch (PrivateUse1): compiled and run for real, on a toy of ours.

The toy lies in ``devices/toy_npu``: its memory, autograd's streams and views in C++, its operators in Python.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import torch

from ci_autotest.doc_links import Page, more
from tests.devices import compiled
from tests.projects import Done, Project, finding_of, outcomes, processes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.heavy
NPU = {"name": "npu", "backend": "torch", "device": "npu", "module": "toy_npu"}
ALIGNED = """
@autotest()
def add():
    return random_tensor(2) + random_tensor(2, 1, 1)


@autotest()
def norm_of_a_layer():
    return torch.nn.functional.layer_norm(torch.nn.Linear(4, 5)(random_tensor(2, dim1=4)), (5,))


@autotest()
def views():
    x = random_tensor(3)
    return x.transpose(0, 2)[1:] * 2


@autotest()
def in_place():
    return random_tensor(2, requires_grad=False).mul_(3)


@autotest()
def moved():
    return random_tensor(2).to(random_device()) * 2


@autotest()
def created():
    return torch.ones(3, device=random_device()) * 2


@autotest()
def drawn():
    return random_tensor(2, requires_grad=False).bernoulli_(0.5)
"""
WRONG = """
@autotest()
def gate():
    x = random_tensor(2)
    return torch.relu(torch.sigmoid(x * 2)) + x


@autotest()
def shadowed():
    return torch.nn.functional.gelu(torch.sigmoid(random_tensor(2)))
"""
MISSING = """
@autotest()
def tanh():
    return torch.tanh(random_tensor(2))


@autotest()
def gelu():
    return torch.nn.functional.gelu(random_tensor(2))


@autotest()
def written_where_it_is_a_copy():
    x = random_tensor(2, requires_grad=False)
    y = x.to(cpu_device())
    y.mul_(2)
    return y
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("device"))


def project_of(folder: Path, package: Path, body: str, **keys: object) -> Project:
    """Return a project with the device's package beside its configuration."""
    project = Project(folder)
    shutil.copytree(package, folder / "toy_npu")
    project.configure(candidates=[{**NPU, **keys}], cases=10)
    project.tests("from ci_autotest import cpu_device, random_device\n\n\n" + body)
    return project


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, package: Path) -> tuple[Project, Done]:
    project = project_of(tmp_path_factory.mktemp("project"), package, ALIGNED + WRONG + MISSING)
    return project, project.run()


def test_run__device_of_a_module__is_aligned_where_it_is_right(ran: tuple[Project, Done]):
    project, done = ran
    report = project.report()
    found = {test: outcome for (test, _), outcome in outcomes(report).items() if outcome == "aligned"}
    assert set(found) == {"add", "norm_of_a_layer", "views", "in_place", "moved", "created", "drawn"}, done.said
    assert report["candidates"][0]["device"] == "npu"
    assert report["candidates"][0]["libraries"] == {"toy_npu": "1.2.3"}
    assert processes(str(project.folder)) == []


def test_run__operator_of_the_device_is_wrong__is_found_named_and_blamed(ran: tuple[Project, Done]):
    project, done = ran
    finding = finding_of(project.report(), "sigmoid")
    assert done.status == 1
    assert (finding["operator"], finding["kind"], finding["blame"]) == ("torch.sigmoid", "value", "candidate")
    assert (finding["confirmed"], finding["shrunk"], finding["repro_verified"]) == (True, True, True)
    assert finding["steps"] == 1
    assert "  candidate: float32[1, 1] on npu:0\n  reference: float32[1, 1] on cpu\n" in done.out
    assert "    import toy_npu\n" in done.out
    assert "    found = run(torch.device('npu'))\n" in done.out


def test_run__gradient_has_no_kernel__a_wrong_value_before_it_is_found_all_the_same(ran: tuple[Project, Done]):
    project, _ = ran
    finding = finding_of(project.report(), "sigmoid")
    assert {test.rpartition("::")[2] for test in finding["tests"]} == {"gate", "shadowed"}
    assert outcomes(project.report())["shadowed", "npu"] == "misaligned"


def test_run__operator_or_gradient_is_missing__is_unsupported_with_the_name_of_its_kernel(ran: tuple[Project, Done]):
    project, _ = ran
    report = project.report()
    reasons = {item["test"].rpartition("::")[2]: item["reason"] for item in report["results"] if item["reason"]}
    assert reasons == {
        "tanh": "torch.tanh: Could not run 'aten::tanh.out' with arguments from the 'npu' backend",
        "gelu": (
            "backward pass of torch.nn.functional.gelu: Could not run 'aten::gelu_backward.grad_input' with arguments from "
            "the 'npu' backend"
        ),
        "written_where_it_is_a_copy": (
            "to is written to: on the device it is a copy, on the reference its argument itself"
        ),
    }
    assert {item["outcome"] for item in report["results"] if item["reason"]} == {"unsupported"}


def test_run__what_is_missing_alone__is_no_status_3_beside_what_is_compared(tmp_path: Path, package: Path):
    tanh = MISSING.partition("@autotest()\ndef gelu")[0]
    assert project_of(tmp_path / "both", package, ALIGNED + tanh).run().status == 0
    assert project_of(tmp_path / "alone", package, tanh).run().status == 3


def test_repro__of_a_device__imports_its_module_and_says_when_it_is_mended(ran: tuple[Project, Done], package: Path):
    project, _ = ran
    finding = finding_of(project.report(), "sigmoid")
    text = (project.folder / "autotest-report" / finding["repro"]).read_text("utf-8")
    assert "    import toy_npu\n    torch.device('npu')\n" in text
    done = project.repro(finding)
    assert done.status == 1, done.said
    assert "toy_npu 1.2.3" in done.out
    assert "the reference recomputed agrees with the values carried here" in done.out
    (project.folder / "toy_npu" / "__init__.py").rename(project.folder / "toy_npu" / "kept.py")
    try:
        mended = (package / "__init__.py").read_text("utf-8").replace('"TOY_NPU_MENDED" in os.environ', "True")
        project.write("toy_npu/__init__.py", mended)
        assert project.repro(finding).status == 0
    finally:
        (project.folder / "toy_npu" / "kept.py").rename(project.folder / "toy_npu" / "__init__.py")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        pytest.param({"TOY_NPU_COUNT": "0"}, "(RuntimeError: no NPU is attached to this machine)", id="no device"),
        pytest.param({"TOY_NPU_FAULT": "raises"}, "cannot open shared object file", id="module raises"),
        pytest.param({"TOY_NPU_FAULT": "absent"}, "device string: npu", id="nothing registered"),
    ],
)
def test_repro__without_the_device__cannot_run_and_is_no_finding(environ, said, ran: tuple[Project, Done]):
    project, _ = ran
    script = project.folder / "autotest-report" / finding_of(project.report(), "sigmoid")["repro"]
    done = project.script(script, environ)
    assert done.status == 2, done.said
    assert "cannot run: " in done.out
    assert said in done.out


HERE = (
    "It is looked for in the test file's folder, the configuration's folder, the current folder and PYTHONPATH."
    f"{more(Page.IMPORTS)}"
)
UNAVAILABLE = {
    "no device": (
        {"TOY_NPU_COUNT": "0"}, {},
        "candidate 'npu' is required and not available: torch {torch} cannot use device 'npu' here (no NPU is attached to this machine). "
        "Run on a machine that has one, or ask for cpu.\n",
    ),
    "module is missing": (
        {}, {"module": "toy_gpu"},
        "candidate 'npu' is required and not available: module 'toy_gpu' of device 'npu' cannot be imported: "
        f"ModuleNotFoundError: No module named 'toy_gpu'. {HERE}\n",
    ),
    "module raises": (
        {"TOY_NPU_FAULT": "raises"}, {},
        "candidate 'npu' is required and not available: module 'toy_npu' of device 'npu' cannot be imported: "
        "OSError: libtoy.so: cannot open shared object file (__init__.py, line 24 in <module>).\n",
    ),
    "module ends its process": (
        {"TOY_NPU_FAULT": "exits"}, {},
        "a worker ended with status 3 while it was set up: it printed nothing. "
        "It imports module 'toy_npu' of candidate 'npu': leave that out.\n",
    ),
    "module registers nothing": (
        {"TOY_NPU_FAULT": "absent"}, {},
        "candidate 'npu' is required and not available: module 'toy_npu' was imported and registers no device 'npu', "
        "nor any other. Write the module that registers 'npu'.\n",
    ),
    "module registers another": (
        {}, {"device": "tpu"},
        "candidate 'npu' is required and not available: module 'toy_npu' was imported and registers no device 'tpu'. "
        "The registered device is 'npu': write device: npu, or the module that registers 'tpu'.\n",
    ),
    "device falls back": (
        {"TOY_NPU_FAULT": "host"}, {},
        "candidate 'npu' is required and not available: device 'npu' falls back: the sum of two tensors on it is on "
        "'cpu'.\n",
    ),
    "device adds wrongly": (
        {"TOY_NPU_FAULT": "adds"}, {},
        "candidate 'npu' is required and not available: device 'npu' computes [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0] "
        "for 1 + 1, 8 times.\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("environ", "keys", "said"), UNAVAILABLE.values(), ids=UNAVAILABLE)
def test_run__device_cannot_be_used__is_one_message_and_status_4(environ, keys, said, tmp_path: Path, package: Path):
    project = project_of(tmp_path, package, ALIGNED, required=True, **keys)
    done = project.run(environ=environ)
    assert (done.status, done.err) == (4, said.format(torch=torch.__version__)), done.said
    assert processes(str(project.folder)) == []


def test_run__device_is_not_asked_for__is_skipped_by_name_and_compares_nothing(tmp_path: Path, package: Path):
    project = project_of(tmp_path, package, ALIGNED)
    done = project.run(environ={"TOY_NPU_COUNT": "0"})
    assert done.status == 3, done.said
    assert "no NPU is attached to this machine" in done.out


#: A pass that leaves the graph as it is, inside another module: nothing but the device can be to blame.
WRAPS = """
import torch


class Whole(torch.nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.inner = graph

    def forward(self, *inputs):
        return self.inner(*inputs)


def wrapped(graph):
    return Whole(graph)
"""


def test_run__other_backends_on_the_device__find_the_same(tmp_path: Path, package: Path):
    project = project_of(
        tmp_path, package, ALIGNED.partition("@autotest()\ndef views")[0] + WRONG.partition("\n\n\n@")[0]
    )
    aot = {**NPU, "name": "aot", "backend": "torch.compile", "options": {"backend": "aot_eager"}}
    own = {**NPU, "name": "own", "backend": "substitute", "replace": {"torch.relu": "mine.relu"}}
    graphs = {**NPU, "name": "graphs", "backend": "fx", "transform": "mypass.wrapped"}
    project.configure(candidates=[graphs, aot, own], cases=4)
    project.write("mine.py", "def relu(x):\n    assert x.device.type == 'npu'\n    return x.relu()\n")
    project.write("mypass.py", WRAPS)
    done = project.run()
    found = outcomes(project.report())
    assert {name for (test, name), outcome in found.items() if outcome == "misaligned"} == {"graphs", "aot", "own"}
    assert {test for (test, name), outcome in found.items() if outcome == "misaligned"} == {"gate"}
    assert {name for (test, name), outcome in found.items() if outcome == "aligned"} == {"graphs", "aot"}
    operators = {(item["operator"], item["candidate"]) for item in project.report()["findings"]}
    assert operators == {("torch.sigmoid", "graphs"), ("torch.sigmoid", "aot"), ("torch.sigmoid", "own")}, done.said
    for item in project.report()["findings"]:
        assert item["repro_verified"], item["id"]
        assert project.repro(item).status == 1


def test_doctor__device_of_a_module__tells_its_version_and_what_has_no_kernel(tmp_path: Path, package: Path):
    done = project_of(tmp_path, package, ALIGNED).command("doctor", "npu")
    assert done.status == 0, done.said
    assert "(toy_npu 1.2.3)\n  devices here: cpu, npu; it runs on npu\n" in done.out
    assert (
        "its device has no kernel for it; operators that torch composes of others are not counted here:\n" in done.out
    )
    assert "\n    torch.tanh: device 'npu' has no kernel of aten::tanh\n" in done.out
    assert "\n    torch.sigmoid: " not in done.out


def test_replay__finding_of_a_device__is_misaligned_until_it_is_mended(ran: tuple[Project, Done]):
    project, _ = ran
    folder = str((project.folder / "autotest-report" / finding_of(project.report(), "sigmoid")["repro"]).parent)
    assert project.command("replay", folder).status == 1
    assert project.command("replay", folder, environ={"TOY_NPU_MENDED": "1"}).status == 0
