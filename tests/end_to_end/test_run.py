"""Exit statuses of ``run``, row by row: 130 is in ``test_workers``, 2 and 4 are in ``contract/test_messages``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.projects import Project, finding_of, outcomes

KERNELS = """
import os
from pathlib import Path

import torch


def exp(x):
    return torch.Tensor.exp(x)


def tanh(x):
    return torch.Tensor.tanh(x) + 1


def sin(x):
    return torch.Tensor.sin(x) + 1


def cos(x):
    # Wrong in the process that calls it first, right ever after.
    here = Path(__file__).with_name("cos.pid")
    if not here.exists():
        here.write_text(str(os.getpid()))
    return torch.Tensor.cos(x) + (here.read_text() == str(os.getpid()))
"""
BODY = """
@autotest(n=2)
def {name}():
    return torch.{name}(random_tensor(ndim=1))

"""
#: Matches nothing in any run here.
UNKNOWN = {"operator": "torch.argsort", "reason": "int32 indices", "kind": "dtype"}
UNMATCHED = (
    "known difference 'torch.argsort' (int32 indices) matches no finding. Remove the row, or correct its spelling."
)


def kernels(folder: Path, *names: str, **keys: Any) -> Project:
    """Return a project with a test and a kernel for each operator."""
    project = Project(folder)
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in names}, **keys)
    project.write("mykernels.py", KERNELS)
    project.tests("".join(BODY.format(name=name) for name in names))
    return project


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project with one finding, of ``torch.tanh``, in its report."""
    project = kernels(tmp_path_factory.mktemp("baseline"), "tanh", "exp")
    done = project.run()
    assert done.status == 1, done.said
    return project


def copy(project: Project, folder: Path) -> Project:
    return Project(Path(shutil.copytree(project.folder, folder / "project")))


def test_run__everything_is_aligned__is_0(tmp_path: Path):
    project = kernels(tmp_path, "exp")
    done = project.run()
    report = project.report()
    assert (done.status, done.err, report["exit_code"]) == (0, "", 0), done.said
    assert (outcomes(report), report["findings"]) == ({("exp", "kernels"): "aligned"}, [])
    assert done.out.startswith("seed 0\n")
    ends = f"✓ aligned: 1 test on 1 candidate, 2 cases\nseed 0; report in {tmp_path}/autotest-report; exit status 0\n"
    assert done.out.endswith(ends), done.out


def test_run__everything_is_aligned__writes_every_surface(baseline: Project):
    names = {path.name for path in (baseline.folder / "autotest-report").iterdir()}
    assert names == {"report.json", "junit.xml", "summary.md", "comment.md", "findings"}


def test_run__misaligned__is_1(baseline: Project):
    report = baseline.report()
    assert (report["exit_code"], report["new"], report["fixed"]) == (1, None, [])
    assert outcomes(report) == {("tanh", "kernels"): "misaligned", ("exp", "kernels"): "aligned"}


def test_run__misaligned_and_fail_on_never__is_0_and_still_told(baseline: Project, tmp_path: Path):
    project = copy(baseline, tmp_path)
    done = project.run("--fail-on", "never")
    assert done.status == 0, done.said
    assert outcomes(project.report())["tanh", "kernels"] == "misaligned"
    assert "misaligned: torch.tanh on kernels" in done.out


def test_run__misaligned_as_the_baseline_and_fail_on_new__is_0(baseline: Project, tmp_path: Path):
    project = copy(baseline, tmp_path)
    done = project.run("--fail-on", "new", "--baseline", str(baseline.folder / "autotest-report"), "--output", "again")
    report = project.report("again")
    assert (done.status, report["new"], report["fixed"]) == (0, [], []), done.said


def test_run__the_baseline_is_the_folder_that_is_written__is_read_first(baseline: Project, tmp_path: Path):
    project = copy(baseline, tmp_path)
    done = project.run("--fail-on", "new", "--baseline", "autotest-report")
    assert (done.status, project.report()["new"]) == (0, []), done.said


def test_run__another_fault_than_the_baseline_and_fail_on_new__is_1(baseline: Project, tmp_path: Path):
    project = kernels(tmp_path, "sin", "exp")
    report = baseline.folder / "autotest-report" / "report.json"
    done = project.run("--fail-on", "new", "--baseline", str(report))
    found = project.report()
    assert (done.status, found["new"]) == (1, [finding_of(found, "sin")["id"]]), done.said
    assert found["fixed"] == ["kernels torch.tanh value"]


def test_run__fail_on_new_without_a_baseline__is_1(baseline: Project, tmp_path: Path):
    project = copy(baseline, tmp_path)
    assert project.run("--fail-on", "new").status == 1


def test_run__misaligned_and_known__is_0(baseline: Project, tmp_path: Path):
    project = copy(baseline, tmp_path)
    row = {
        "operator": "torch.tanh",
        "candidate": "kernels",
        "kind": "value",
        "reason": "off by one",
        "until": "2999-01-01",
    }
    project.substitute({"torch.tanh": "mykernels.tanh", "torch.exp": "mykernels.exp"}, known=[row, UNKNOWN])
    done = project.run()
    report = project.report()
    assert (done.status, finding_of(report, "tanh")["known"]) == (0, "off by one"), done.said
    assert (report["notes"], f"note: {UNMATCHED}" in done.out) == ([UNMATCHED], True)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({"operator": "torch.tanh", "reason": "r", "until": "2020-01-01"}, id="out of date"),
        pytest.param({"operator": "torch.tanh", "reason": "r", "kind": "gradient"}, id="another kind"),
    ],
)
def test_run__misaligned_and_not_quite_known__is_1_and_noted(row: dict[str, str], baseline: Project, tmp_path: Path):
    project = copy(baseline, tmp_path)
    project.substitute({"torch.tanh": "mykernels.tanh", "torch.exp": "mykernels.exp"}, known=[row])
    done = project.run()
    report = project.report()
    assert (done.status, finding_of(report, "tanh")["known"]) == (1, None), done.said
    assert len(report["notes"]) == 1
    assert ("2020-01-01" in report["notes"][0]) == ("until" in row), "says which row is out of date, and since when"


def test_run__flaky__is_0_and_told_with_both_results(tmp_path: Path):
    project = kernels(tmp_path, "cos", "exp")
    done = project.run()
    report = project.report()
    found = finding_of(report, "cos")
    assert (done.status, found["outcome"], found["confirmed"]) == (0, "flaky", False), done.said
    assert outcomes(report) == {("cos", "kernels"): "flaky", ("exp", "kernels"): "aligned"}
    assert found["detail"] == "first run: misaligned, torch.cos (value); in a fresh process: aligned"
    assert found["message"] in done.out


def test_run__flaky_and_fail_on_flaky__is_1(tmp_path: Path):
    project = kernels(tmp_path, "cos", "exp")
    done = project.run("--fail-on", "flaky")
    assert (done.status, project.report()["findings"][0]["outcome"]) == (1, "flaky"), done.said


def test_run__candidate_that_is_not_there_and_not_required__is_3_and_named(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(
        candidates=[{"name": "here", "backend": "torch"}, {"name": "gone", "backend": "torch", "device": "cuda"}]
    )
    project.tests(BODY.format(name="exp"))
    done = project.run()
    report = project.report()
    assert (done.status, outcomes(report)) == (3, {("exp", "here"): "aligned", ("exp", "gone"): "not_run"}), done.said
    assert [(item["name"], item["available"]) for item in report["candidates"]] == [("here", True), ("gone", False)]
    assert done.out.count("gone") < 6, "not told over and over"


def test_run__budget_is_spent__what_was_not_run_is_told(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "here", "backend": "torch"}])
    project.tests(BODY.format(name="exp").replace("n=2", "n=1000000"))
    done = project.run("--budget", "3s")
    (result,) = project.report()["results"]
    counts = result["cases"]
    assert (counts["aligned"] + counts["not_run"], counts["not_run"] > 0) == (1000000, True), done.said
    assert done.status == 0, done.said
    assert f"{counts['not_run']:,}" in done.out or f" {counts['not_run']} " in done.out
