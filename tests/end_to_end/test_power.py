"""`ci-autotest power`: the score on every surface, beside the result of a run; a mutant that crashes; bad input."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.projects import Project

BODIES = """
import os

from ci_autotest import operator


@operator
def scaled(x, factor=2.0):
    if factor != 2.0:
        os.abort()
    return x * factor


@autotest(n=6)
def own():
    return scaled(random_tensor(ndim=2, dim0=3, dim1=4))


@autotest(n=6)
def mean():
    return torch.mean(random_tensor(ndim=3), dim=random(0, 3).to(int), keepdim=random_bool())


@autotest(n=4, rtol=1e-3, atol=1e-2)
def small():
    return torch.mul(random_tensor(ndim=2, low=-1, high=1), 4e-6)


@autotest(n=2, raises=RuntimeError)
def refused():
    return torch.mm(random_tensor(ndim=2, dim0=2, dim1=3), random_tensor(ndim=2, dim0=2, dim1=3))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    found = Project(tmp_path_factory.mktemp("power"))
    found.tests(BODIES)
    ran = found.run("--candidate", "torch", "-q")
    assert ran.status == 0, ran.said
    return found


@pytest.fixture(scope="module")
def done(project):
    return project.command("power", "--workers", "1", "--fail-under", "0.99")


@pytest.fixture(scope="module")
def report(project, done):
    assert done.status == 1, done.said
    return project.report()


def own(report, name):
    return next(test for test in report["power"]["tests"] if test["test"].endswith(f"::{name}"))


def test_power__score_below_what_is_asked_for__ends_with_1(done, report):
    power = report["power"]

    assert power["score"] == power["killed"] / (power["killed"] + power["survived"]) < 0.99
    assert f"power: {power['score']:.2f}"[:-1] in done.out
    assert "below 0.99" in done.out


def test_power__crash_of_a_mutant__costs_that_mutant_alone(report):
    mutants = own(report, "own")["mutants"]

    crashed = [each for each in mutants if each.get("by") == "crash"]
    assert [(each["kind"], each["detail"], each["outcome"]) for each in crashed] == [("constant", "factor", "killed")]
    # No case gives `factor`, and the call that would show it ends the process of the reference too.
    unknown = [(each["kind"], each["detail"]) for each in mutants if each.get("reason") == "unknown"]
    assert unknown == [("ignored", "factor")]
    assert len(mutants) > 5


def test_power__powerless_test__is_named(done, report):
    assert "powerless: autotests/autotest_all.py::small: it passes where torch.mul returns zeros" in done.out
    zeros = next(each for each in own(report, "small")["mutants"] if each["kind"] == "zeros")
    assert (zeros["outcome"], zeros["reason"]) == ("survived", "tolerance")
    assert own(report, "mean")["score"] > 0.9


def test_power__test_that_expects_an_error__is_named(done, report):
    assert own(report, "refused")["unscored"] == "refusal"
    assert "no score: autotests/autotest_all.py::refused: its body expects an error" in done.out


def test_power__report_of_a_run__keeps_its_results(report):
    assert {item["outcome"] for item in report["results"]} == {"aligned"}
    assert report["exit_code"] == 1


def test_power__comment_and_page__have_the_score_beside_the_verdict(project, report):
    folder = project.folder / "autotest-report"
    comment, page = ((folder / name).read_text("utf-8") for name in ("comment.md", "index.html"))

    heading = comment.partition("\n")[0]
    score = f"{int(report['power']['score'] * 100) / 100:.2f}"
    assert heading == (
        f"### ✗ power: {score}, below 0.99 (what was compared is aligned: 4 tests on 1 candidate, 18 cases)"
    )
    assert "**powerless**" in comment
    assert '<section aria-labelledby="h-power" id="power">' in page
    assert "Powerless:" in page


def test_power__junit__fails_for_the_score_and_skips_what_has_none(project, report):
    root = ET.parse(project.folder / "autotest-report" / "junit.xml").getroot()  # noqa: S314 - our own file
    cases = {case.get("name"): case for case in root.iter("testcase")}

    assert cases["power"].find("failure") is not None
    assert cases["mean[power]"].find("failure") is None
    assert cases["refused[power]"].find("skipped") is not None
    assert "returns zeros" in (cases["small[power]"].findtext("system-out") or "")


def test_power__part_of_the_tests__ends_with_0_and_prints_the_report(project):
    done = project.command("power", "--workers", "1", "-k", "mean", "--mutants", "4", "--json", "--output", "part")

    assert done.status == 0, done.said
    assert project.report("part")["power"]["tests"][0]["test"] == "autotests/autotest_all.py::mean"
    assert done.out.startswith('{\n  "schema": "ci-autotest/report/1"')
    assert (project.folder / "part" / "comment.md").read_text("utf-8").startswith("### ✓ power: ")


def test_power__kernels_of_the_configuration__are_what_counts(tmp_path):
    project = Project(tmp_path)
    project.tests(BODIES)
    project.substitute({"torch.mean": "nowhere.mean"})

    done = project.command("power", "--workers", "1", "-k", "mean or small", "--mutants", "6")

    assert done.status == 0, done.said
    report = project.report()
    assert {each["operator"] for each in own(report, "mean")["mutants"]} == {"torch.mean"}
    assert own(report, "small")["unscored"] == "not_replaced"
    assert report["power"]["tolerances"] == "kernels"


def test_power__budget_that_is_over__names_what_was_not_run(project):
    done = project.command("power", "--workers", "1", "--budget", "1ms", "--output", "short")

    tests = project.report("short")["power"]["tests"]
    assert {test.get("unscored") for test in tests} >= {"not_run"}
    assert "the time was up" in done.out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        pytest.param(
            ["--fail-under", "2"], 2, "--fail-under is '2'. Give a share from 0 to 1, such as 0.9.", id="no share"
        ),
        pytest.param(
            ["--fail-under", "high"],
            2,
            "--fail-under is 'high'. Give a share from 0 to 1, such as 0.9.",
            id="no number",
        ),
        pytest.param(["nowhere"], 2, "nowhere", id="no such folder"),
        pytest.param(["-k", "nothing"], 3, "no test matches -k 'nothing'", id="no test"),
        pytest.param(["-k", "refused", "--output", "none"], 3, "power: none", id="no score"),
    ],
)
def test_power__bad_input__is_one_sentence(project, words, status, said):
    done = project.command("power", "--workers", "1", *words)

    assert (done.status, said in done.said) == (status, True), done.said
