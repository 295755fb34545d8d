"""Exit statuses of ``run``, row by row: 130 is in ``test_workers``, 2 and 4 are in ``contract/test_messages``."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.projects import Done, Project, finding_of, outcomes, together

if TYPE_CHECKING:
    from collections.abc import Mapping

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
UNMATCHED = "known difference 'torch.argsort' (int32 indices) matched no finding of this run. If it never does, remove the row or correct its spelling."


def kernels(folder: Path, *names: str, **keys: Any) -> Project:
    """Return a project with a test and a kernel for each operator."""
    project = Project(folder)
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in names}, **keys)
    project.write("mykernels.py", KERNELS)
    project.tests("".join(BODY.format(name=name) for name in names))
    return project


class Scenario(NamedTuple):
    """One run: which kernels it has, what it is told, and its configuration."""

    names: tuple[str, ...]
    words: tuple[str, ...] = ()
    keys: Mapping[str, Any] = MappingProxyType({})


ACCEPTED = {"operator": "torch.tanh", "candidate": "kernels", "kind": "value", "reason": "off by one"}
#: None of these accepts the fault of ``torch.tanh``.
REFUSED = [
    {"operator": "torch.tanh", "reason": "too old", "until": "2020-01-01"},
    {"operator": "torch.tanh", "reason": "another kind", "kind": "gradient"},
    {"operator": "torch.tanh", "reason": "elsewhere", "candidate": "paddle"},
    UNKNOWN,
]
SCENARIOS = {
    "right": Scenario(("exp",)),
    "never": Scenario(("tanh", "exp"), ("--fail-on", "never")),
    "known": Scenario(("tanh", "exp"), (), {"known": [{**ACCEPTED, "until": "2999-01-01"}, UNKNOWN]}),
    # Without a baseline everything is new.
    "not known": Scenario(("tanh", "exp"), ("--fail-on", "new"), {"known": REFUSED}),
    "as the baseline": Scenario(("tanh", "exp"), ("--fail-on", "new", "--baseline", "{baseline}")),
    "not as the baseline": Scenario(("sin", "exp"), ("--fail-on", "new", "--baseline", "{baseline}/report.json")),
    "flaky": Scenario(("cos", "exp")),
    "flaky counts": Scenario(("cos", "exp"), ("--fail-on", "flaky")),
}


class Ran(NamedTuple):
    """What came of a scenario."""

    done: Done
    report: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project with one finding, of ``torch.tanh``, in its report."""
    project = kernels(tmp_path_factory.mktemp("baseline"), "tanh", "exp")
    done = project.run()
    assert done.status == 1, done.said
    return project


@pytest.fixture(scope="module")
def ran(baseline: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Return what came of each of ``SCENARIOS``."""
    report = str(baseline.folder / "autotest-report")
    projects = [kernels(tmp_path_factory.mktemp("run"), *row.names, **row.keys) for row in SCENARIOS.values()]
    words = [[word.replace("{baseline}", report) for word in row.words] for row in SCENARIOS.values()]
    done = together(*(partial(project.run, *each) for project, each in zip(projects, words, strict=True)))
    found = [Ran(each, project.report(), project.folder) for each, project in zip(done, projects, strict=True)]
    return dict(zip(SCENARIOS, found, strict=True))


def test_run__everything_is_aligned__is_0(ran: dict[str, Ran]):
    done, report, folder = ran["right"]
    assert (done.status, done.err, report["exit_code"]) == (0, "", 0), done.said
    assert (outcomes(report), report["findings"]) == ({("exp", "kernels"): "aligned"}, [])
    assert done.out.startswith("seed 0: 1 test file on kernels\n")
    ends = f"✓ aligned: 1 test on 1 candidate, 2 cases\nseed 0; report in {folder}/autotest-report; exit status 0\n"
    assert done.out.endswith(ends), done.out


def test_run__misaligned__is_1_with_every_surface(baseline: Project):
    report = baseline.report()
    assert (report["exit_code"], report["new"], report["fixed"]) == (1, None, [])
    assert outcomes(report) == {("tanh", "kernels"): "misaligned", ("exp", "kernels"): "aligned"}
    names = {path.name for path in (baseline.folder / "autotest-report").iterdir()}
    assert names == {"report.json", "junit.xml", "results.sarif", "summary.md", "comment.md", "index.html", "findings"}


def test_run__misaligned_and_fail_on_never__is_0_and_still_told(ran: dict[str, Ran]):
    done, report, _ = ran["never"]
    assert (done.status, outcomes(report)["tanh", "kernels"]) == (0, "misaligned"), done.said
    assert "misaligned: torch.tanh on kernels" in done.out


def test_run__misaligned_as_the_baseline_and_fail_on_new__is_0(ran: dict[str, Ran]):
    done, report, _ = ran["as the baseline"]
    assert (done.status, report["new"], report["fixed"]) == (0, [], []), done.said


def test_run__another_fault_than_the_baseline_and_fail_on_new__is_1(ran: dict[str, Ran]):
    done, report, _ = ran["not as the baseline"]
    assert (done.status, report["new"]) == (1, [finding_of(report, "sin")["id"]]), done.said
    assert report["fixed"] == ["kernels torch.tanh value"]


def test_run__the_baseline_is_the_folder_that_is_written__is_read_first(baseline: Project, tmp_path: Path):
    project = Project(Path(shutil.copytree(baseline.folder, tmp_path / "project")))
    done = project.run("--fail-on", "new", "--baseline", "autotest-report")
    assert (done.status, project.report()["new"]) == (0, []), done.said


def notes_on_rows(report: dict) -> list[str]:
    """Return the notes without those that say which operators were not probed."""
    return [note for note in report["notes"] if "several times in a row" not in note]


def test_run__misaligned_and_known__is_0(ran: dict[str, Ran]):
    done, report, _ = ran["known"]
    assert (done.status, finding_of(report, "tanh")["known"]) == (0, "off by one"), done.said
    assert (notes_on_rows(report), f"note: {UNMATCHED}" in done.out) == ([UNMATCHED], True)
    # A value that is accepted leaves nothing for a probe to tell, and two cases are too few to probe `exp`.
    assert any("torch.tanh on kernels was called, but never several times in a row" in note for note in report["notes"])


def test_run__misaligned_and_not_quite_known__is_1_and_each_row_is_noted(ran: dict[str, Ran]):
    done, report, _ = ran["not known"]
    assert (done.status, finding_of(report, "tanh")["known"]) == (1, None), done.said
    assert [[row["reason"] in note for row in REFUSED] for note in notes_on_rows(report)] == [
        [i == j for j in range(len(REFUSED))] for i in range(len(REFUSED))
    ]
    assert "2020-01-01" in notes_on_rows(report)[0]


def test_run__flaky__is_0_and_told_with_both_results(ran: dict[str, Ran]):
    done, report, _ = ran["flaky"]
    found = finding_of(report, "cos")
    assert (done.status, found["outcome"], found["confirmed"]) == (0, "flaky", False), done.said
    assert outcomes(report) == {("cos", "kernels"): "flaky", ("exp", "kernels"): "aligned"}
    assert found["detail"] == "first run: misaligned, torch.cos (value); in a fresh process: aligned"
    assert found["message"] in done.out


def test_run__flaky_and_fail_on_flaky__is_1(ran: dict[str, Ran]):
    done, report, _ = ran["flaky counts"]
    assert (done.status, report["findings"][0]["outcome"]) == (1, "flaky"), done.said


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
    # On a machine that takes the budget to start a worker nothing is compared, and that is told by the status.
    assert done.status == (0 if counts["aligned"] else 3), done.said
    assert f"{counts['not_run']:,}" in done.out or f" {counts['not_run']} " in done.out
