"""The candidate `onnxruntime`: each body exported by torch and run by ONNX Runtime, outputs alone.

`make test-all` installs it beside torch; else: python -m pip install -c constraints.txt onnx onnxruntime onnxscript.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch as plain_torch

from ci_autotest import random_tensor, torch
from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.compilers.onnx import OnnxExporter
from ci_autotest.kinds import OnnxRuntimeCandidate
from tests.engine import judged, record
from tests.projects import Project, finding_of, outcomes

LACKING = [name for name in ("onnx", "onnxruntime", "onnxscript") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(
        bool(LACKING), reason=f"{LACKING}: python -m pip install {' '.join(OnnxRuntimeCandidate.packages)}"
    ),
]
functional = torch.nn.functional


@pytest.fixture(scope="module")
def exported():
    return ExportBackend(OnnxExporter({}))


def of(*dims, **how):
    return random_tensor(dims=dims, **how)


def twice(x):
    y = x.exp()
    return y, y, x


def sized(x):
    return x.reshape(x.shape[0] * 2, -1) + len(x)


ALIGNED = {
    "a chain": lambda: (torch.sin(of(3, 4)).relu() * 2).sum(1),
    "matmul": lambda: of(2, 3, 4) @ of(4, 5),
    "softmax": lambda: functional.softmax(of(3, 5), dim=1),
    "layer_norm": lambda: functional.layer_norm(of(3, 4), (4,), of(4), of(4)),
    "a convolution": lambda: torch.nn.Conv2d(3, 4, 3)(of(2, 3, 8, 8)),
    "a module in training": lambda: torch.nn.BatchNorm2d(3)(of(2, 3, 4, 5)),
    "a module for inference": lambda: torch.nn.BatchNorm2d(3).eval()(of(2, 3, 4, 5)),
    "an LSTM": lambda: torch.nn.LSTM(3, 4)(of(5, 2, 3)),
    "a tuple": lambda: torch.max(of(3, 6), dim=1),
    "an output twice, and an input": lambda: twice(of(3)),
    "an overwritten input": lambda: of(3, requires_grad=False).add_(1),
    "a permuted input of 64 bits": lambda: of(3, 4, dtype=plain_torch.float64).t() + 1,
    "whole numbers": lambda: torch.fmod(of(9, dtype=plain_torch.int32, low=-9, high=9), 4),
    "a size that Python reads": lambda: sized(of(3, 4)),
}


@pytest.mark.parametrize("body", ALIGNED.values(), ids=ALIGNED)
def test_exported__operators_of_many_families_are_aligned(exported, body):
    found = judged(record(body, profile="ordinary"), exported).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


def test_exported__by_the_other_exporter__is_aligned():
    found = judged(
        record(ALIGNED["a convolution"], profile="ordinary"), ExportBackend(OnnxExporter({"dynamo": True}))
    ).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


def test_exported__has_no_gradients_and_says_so(exported):
    attempt = record(ALIGNED["matmul"], profile="ordinary")
    trace = exported.run(attempt.program, attempt.sources)
    assert (trace.has_backward, trace.has_flags, exported.mode) == (False, False, "forward only")
    assert trace.shown == {len(attempt.program.steps) - 2}


def test_exported__output_that_the_exporter_computed__is_not_compared(exported):
    def half():
        x = of(3)
        return torch.exp(x), torch.zeros_like(x)

    attempt = record(half, profile="ordinary")
    trace = exported.run(attempt.program, attempt.sources)
    steps = attempt.program.steps
    assert [steps[index].name for index in trace.shown] == ["exp"]
    assert judged(attempt, exported).verdict.outcome == "aligned"


UNSUPPORTED = {
    "an operator": (lambda: torch.erfinv(of(3)), "Exporting the operator 'aten::erfinv' to ONNX opset version"),
    "an argument": (lambda: functional.threshold(of(3), 0.0, 1.0), "ONNX export of operator threshold, non-zero value"),
    "an operator that its exporter refuses in code": (lambda: torch.linalg.svdvals(of(3, 3)), "linalg_svdvals"),
    "a kernel": (lambda: torch.unique(of(3, dtype=plain_torch.uint8, low=0, high=3)), "implementation for Unique("),
    "a dtype of ONNX's operator": (
        lambda: torch.log(of(3, dtype=plain_torch.int32, low=1)),
        "ONNX defines no Log of tensor(int32)",
    ),
    "a dtype inside": (
        lambda: functional.avg_pool1d(torch.neg(of(1, 2, 3, dtype=plain_torch.int64, low=1, requires_grad=False)), 1),
        "ONNX defines no AveragePool of tensor(int64)",
    ),
    "a dtype": (lambda: torch.exp(of(3, dtype=plain_torch.bfloat16)), "no kernels for bfloat16"),
    "a draw": (lambda: functional.dropout(of(9)), "the exported graph draws random numbers (Dropout)"),
    "a constant": (lambda: torch.zeros_like(of(3)), "folded the body into constants (torch.zeros_like)"),
    "a number that Python reads": (
        lambda: of(4) * of(3).sum().item(),
        "a body that reads elements or gradients cannot be exported",
    ),
    "a gradient": (
        lambda: of(3).sum().backward(),
        "a body that reads elements or gradients cannot be exported: backward",
    ),
}


@pytest.mark.parametrize(("body", "named"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_exported__what_cannot_be__is_unsupported_and_named(exported, body, named):
    found = judged(record(body, profile="ordinary"), exported).verdict
    assert found.outcome == "unsupported", found.misalignment
    assert named in found.oracle
    assert "\n" not in found.oracle


def test_exported__hooks__are_unsupported(exported):
    def hooked():
        x = of(3)
        x.register_hook(lambda gradient: gradient * 2)
        return x.exp()

    found = judged(record(hooked, profile="ordinary"), exported).verdict
    assert (found.outcome, found.oracle) == ("unsupported", "a model cannot contain hooks")


def test_exported__model_that_onnxruntime_refuses__is_an_error(exported):
    # The exporter leaves a negative dimension to an operator of ONNX that takes none.
    found = judged(record(lambda: torch.movedim(of(3), -1, 0), profile="ordinary"), exported).verdict
    assert (found.outcome, found.kind, found.operator) == ("misaligned", "error", "torch.movedim")
    assert "Invalid attribute perm" in found.misalignment.detail


#: Sines are exported as cosines, as an operator's translation is registered by those who write their own.
PLANTED = """
import torch


def cosine(graph, value):
    return graph.op("Cos", value)


torch.onnx.register_custom_op_symbolic("aten::sin", cosine, 9)
"""
BODIES = """
import planted


@autotest(n=2)
def sine():
    return torch.sin(random_tensor(ndim=2) * 2).abs()


@autotest(n=2)
def exponential():
    return torch.exp(random_tensor(ndim=2))


@autotest(n=2)
def inverse():
    return torch.erfinv(random_tensor(ndim=2))
"""


def test_run__wrong_translation__is_found_with_a_repro_that_shows_it(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "onnxruntime", "backend": "onnxruntime"}])
    project.write("planted.py", PLANTED)
    project.tests(BODIES)
    done = project.run("--candidate", "onnxruntime", environ={"PYTHONPATH": str(tmp_path)})
    report = project.report()
    name = "onnxruntime"
    assert outcomes(report) == {
        ("sine", name): "misaligned", ("exponential", name): "aligned", ("inverse", name): "unsupported",
    }, done.said  # fmt: skip
    assert done.status == 1
    assert "Exporting the operator 'aten::erfinv' to ONNX opset version" in done.said
    (candidate,) = report["candidates"]
    assert (candidate["mode"], candidate["version"]) == ("forward only", "1.31.1")
    finding = finding_of(report, "sin", "value")
    assert (finding["blame"], finding["shrunk"]) == ("candidate", True)
    # Alone, where nothing is planted, the repro says that it is fixed; with the planted translation it shows it.
    assert project.repro(finding).status == 0
    script = tmp_path / "autotest-report" / finding["repro"]
    text = script.read_text("utf-8").replace("import onnxruntime\n", "import onnxruntime\n    import planted\n")
    script.write_text(text, encoding="utf-8")
    repro = project.repro(finding, "autotest-report", tmp_path)
    assert (repro.status, "misaligned: value of sin" in repro.out) == (1, True), repro.said


DEFECT = """
@autotest(n=1)
def moved():
    return torch.movedim(random_tensor(dims=(3,)), -1, 0)
"""


def test_run__defect_of_the_exporter__has_a_verified_repro(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "onnxruntime", "backend": "onnxruntime", "options": {"opset_version": 18}}])
    project.tests(DEFECT)
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (done.status, finding["kind"], finding["repro_verified"]) == (1, "error", True), done.said
    repro = project.repro(finding)
    assert (repro.status, "the candidate raises Fail" in repro.out) == (1, True), repro.said
    # An error of the script's own is no finding, though Python would end with the same status.
    script = tmp_path / "autotest-report" / finding["repro"]
    script.write_text(script.read_text("utf-8").replace("EXPECTED = {", "EXPECTED = nothing and {"), encoding="utf-8")
    assert project.repro(finding).status == 2


def test_run__nothing_can_be_exported__is_status_3(tmp_path: Path):
    project = Project(tmp_path)
    project.tests("@autotest(n=2)\ndef inverse():\n    return torch.erfinv(random_tensor(ndim=2))\n")
    done = project.run("--candidate", "onnxruntime")
    assert done.status == 3, done.said


def test_doctor__onnxruntime__says_versions_and_what_it_cannot_tell(tmp_path: Path):
    done = Project(tmp_path).command("doctor", "onnxruntime")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("onnxruntime: available\n  onnxruntime 1.31.1 (onnx 1.23.2, torch ")
    assert "torch's exporter decides for each body if it can be exported" in done.out


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_run__package_is_missing__is_one_message_and_status_4(missing: str, tmp_path: Path):
    project = Project(tmp_path)
    project.write(f"{missing}.py", f"raise ModuleNotFoundError(\"No module named '{missing}'\")\n")
    project.tests(DEFECT)
    done = project.run("--candidate", "onnxruntime", environ={"PYTHONPATH": str(tmp_path)})
    assert done.status == 4, done.said
    install = " ".join(OnnxRuntimeCandidate.packages)
    assert done.said.count(
        f"needs the package {missing}, which cannot be imported beside torch (ModuleNotFoundError: No module named "
        f"'{missing}'). Run: python -m pip install {install}"
    ) == 1, done.said  # fmt: skip


@pytest.mark.parametrize(
    ("options", "newest"),
    [({"opset_version": 2}, 23), ({"opset_version": 24}, 23), ({"opset_version": 99, "dynamo": True}, r"\d+")],
)
def test_run__opset_that_torch_does_not_export__is_status_2_with_the_range(tmp_path: Path, options, newest):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "onnxruntime", "backend": "onnxruntime", "options": options}])
    project.tests("@autotest(n=2)\ndef sine():\n    return torch.sin(random_tensor(ndim=2))\n")
    done = project.run()
    assert done.status == 2, done.said
    sentence = rf"candidate 'onnxruntime' has opset_version: {options['opset_version']}, and torch \S+ exports opsets 7 to {newest} with"
    assert len(re.findall(sentence, done.said)) == 1, done.said
