"""What a run is told about its tests, its end and its output: -k, -x, --maxfail, --lf, -q, -v, -s, --json, --workers 0."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ci_autotest.doc_links import Page, more
from tests.projects import Done, Project, environment, outcomes

KERNELS = """
import os
import torch


def right(x):
    print("kernel of", x.dtype)
    return torch.exp(x)


def wrong(x):
    print("wrong in process", os.getppid() == int(os.environ["PARENT"]))
    return torch.abs(x) + 1


def other(x):
    return torch.floor(x) + 1
"""
TESTS = """
@autotest(n=5)
def exp():
    return torch.exp(random_tensor(ndim=2))


@autotest(n=5)
def abs_of():
    return torch.abs(random_tensor(ndim=2))


@autotest(n=5)
def floor():
    return torch.floor(random_tensor(ndim=2))
"""
REPLACED = {"torch.exp": "mykernels.right", "torch.abs": "mykernels.wrong", "torch.floor": "mykernels.other"}
PARENT = {"PARENT": "0"}


def project(tmp_path, **keys: Any) -> Project:
    made = Project(tmp_path)
    made.write("mykernels.py", KERNELS)
    made.tests(TESTS)
    made.substitute(REPLACED, **keys)
    return made


def ran(made: Project, *words: str) -> Done:
    return made.run(*words, environ=PARENT)


def test_run__keywords__choose_the_tests_and_are_a_part_of_the_run(tmp_path):
    made = project(tmp_path)

    done = ran(made, "-k", "exp and not floor")

    report = made.report()
    # Two replacements were never called; that is no failure of a run of one test.
    assert (done.status, outcomes(report)) == (0, {("exp", "kernels"): "aligned"}), done.said
    assert report["is_partial"]
    assert "1 of 3 tests match -k 'exp and not floor'" in done.out


def test_run__keywords_of_no_test__is_3_and_names_some(tmp_path):
    made = project(tmp_path)
    done = ran(made, "-k", "softmax")
    file = "autotests/autotest_all.py"
    assert (done.status, done.err) == (
        3,
        f"no test matches -k 'softmax': there are {file}::exp, {file}::abs_of, {file}::floor. `ci-autotest list` prints them."
        f"{more(Page.NO_TEST)}\n",
    )


@pytest.mark.parametrize("row", [{}, {"isolated": True}], ids=["in the worker", "isolated"])
def test_run__kernel_prints_and_ends_its_process__the_finding_has_what_it_printed(row, tmp_path):
    made = Project(tmp_path)
    made.write("mykernels.py", "import os\n\n\ndef ends(x):\n    print('the last words')\n    os._exit(3)\n")
    made.tests("@autotest(n=1)\ndef exp():\n    return torch.exp(random_tensor(ndim=2))\n")
    kernels = {"name": "kernels", "backend": "substitute", "replace": {"torch.exp": "mykernels.ends"}, **row}
    made.configure(candidates=[kernels])
    done = made.run("-s")
    (found,) = made.report()["findings"]
    assert (found["outcome"], found["output"].splitlines()[0]) == ("crashed", "the last words"), done.said
    assert "the last words" in done.said


def test_list__keywords__lists_these(tmp_path):
    made = project(tmp_path)
    done = made.command("list", "-k", "exp or floor")
    assert [line.split()[0].rpartition("::")[2] for line in done.out.splitlines()[1:-1]] == ["exp", "floor"]


def test_run__last_failed__runs_them_until_they_pass(tmp_path):
    made = project(tmp_path)
    first = ran(made)
    again = ran(made, "--lf", "-k", "abs_of")
    both = ran(made, "--lf")
    failed = set(outcomes(made.report()))
    made.write("mykernels.py", KERNELS.replace("torch.abs(x) + 1", "torch.abs(x)"))
    right = ran(made, "--lf")
    rest = ran(made, "--lf")
    assert [done.status for done in (first, again, both, right, rest)] == [1] * 5, rest.said
    assert failed == {("abs_of", "kernels"), ("floor", "kernels")}
    assert set(outcomes(made.report())) == {("floor", "kernels")}
    assert "1 of 3 tests failed when they last ran (--lf)" in rest.out


def test_run__last_failed_and_none_did__all_run(tmp_path):
    made = project(tmp_path)
    done = ran(made, "--lf", "-q")
    assert len(made.report()["results"]) == 3
    assert (done.status, "no test failed when it last ran, so --lf runs all of them" in made.report()["notes"]) == (
        1,
        True,
    )


@pytest.mark.parametrize(("words", "most"), [(("-x",), 1), (("--maxfail", "2"), 2)], ids=["-x", "--maxfail 2"])
def test_run__so_many_findings__no_further_case_begins(tmp_path, words: tuple[str, ...], most: int):
    made = project(tmp_path)

    done = ran(made, *words, "--cases", "1000")

    report = made.report()
    notes = [note for note in report["notes"] if note.startswith("stopped after ")]
    assert (done.status, len(report["findings"])) == (1, most), done.said
    assert notes == [f"stopped after {most} failure{'s' * (most > 1)} (-x or --maxfail)"]
    assert sum(item["cases"]["not_run"] for item in report["results"]) > 0


def test_run__first_failure_is_accepted__the_run_goes_on(tmp_path):
    known = [{"operator": name, "reason": "known"} for name in ("torch.abs", "torch.floor")]
    made = project(tmp_path, known=known)
    done = ran(made, "-x")
    assert (done.status, made.report()["summary"]["not_run"]) == (0, 0), done.said


def test_run__quiet__one_line_a_finding_and_the_verdict(tmp_path):
    made = project(tmp_path)
    lines = ran(made, "-q").out.splitlines()
    assert [line.partition(" on ")[0] for line in lines[:2]] == ["misaligned: torch.abs", "misaligned: torch.floor"]
    assert [line[:1] for line in lines[2:]] == ["✗", "s"]


def test_run__json__the_report_is_on_standard_output_and_the_rest_is_not(tmp_path):
    made = project(tmp_path)
    done = ran(made, "--json")
    assert json.loads(done.out) == made.report()
    assert "✗ 2 operators misaligned" in done.err


def test_run__output_of_a_finding__is_in_the_report_and_below_its_program(tmp_path):
    made = project(tmp_path)
    done = ran(made)
    found = {item["operator"]: item["output"] for item in made.report()["findings"]}
    assert found["torch.abs"].splitlines()[0] == "wrong in process False"
    assert found["torch.floor"] == ""
    assert "  printed in this case" in done.out
    assert "kernel of" not in done.out  # It is aligned.


def test_run__output_is_shown__as_it_comes(tmp_path):
    made = project(tmp_path)
    done = ran(made, "-s", "-k", "exp")
    assert (done.status, "kernel of torch.float32" in done.out) == (0, True), done.said


def test_run__in_this_process__no_other_process_runs_a_test(tmp_path):
    made = project(tmp_path)
    made.write(
        "mykernels.py",
        KERNELS.replace('"wrong in process", os.getppid() == int(os.environ["PARENT"])', '"in", os.getpid()'),
    )
    process = made.start("run", "--workers", "0", environ=PARENT)
    out, err = process.communicate(timeout=made.greatest_s)
    report = made.report()
    assert process.returncode == 1, out + err
    assert {line for line in out.splitlines() if line.startswith("in ")} == {f"in {process.pid}"}
    assert [item["confirmed"] for item in report["findings"]] == [False, False]
    assert [item["repro_verified"] for item in report["findings"]] == [True, True]
    assert any(note.startswith("everything ran in one process (--workers 0)") for note in report["notes"])


def test_run__in_this_process__finds_what_workers_find(tmp_path):
    made = project(tmp_path)
    ran(made, "--output", "apart")
    ran(made, "--workers", "0", "--output", "here")
    apart, here = made.report("apart"), made.report("here")
    assert outcomes(apart) == outcomes(here)
    assert [item["program"] for item in apart["findings"]] == [item["program"] for item in here["findings"]]
    assert [item["cases"] for item in apart["results"]] == [item["cases"] for item in here["results"]]


@pytest.mark.parametrize(("words", "option"), [(("--workers", "0"), "--workers 0"), (("-s",), "-s")], ids=["0", "-s"])
def test_run__on_a_cluster__refuses_what_needs_this_machine(tmp_path, words: tuple[str, ...], option: str):
    made = project(tmp_path)
    done = made.command("run", "--executor", "ray", *words)
    message = f"{option} needs processes of this machine, and --executor is ray. Leave one of the two out.\n"
    assert (done.status, done.err) == (2, message)


def test_run__json_and_this_process__refuses_lines_among_the_report(tmp_path):
    made = project(tmp_path)
    done = made.command("run", "--workers", "0", "--json")
    message = "with --workers 0, what tests print would be among the lines of --json. Leave one of the two out.\n"
    assert (done.status, done.out, done.err) == (2, "", message)


def test_run__first_test_is_broken__no_further_case_begins(tmp_path):
    made = project(tmp_path)
    made.tests("@autotest(n=5)\ndef broken():\n    raise RuntimeError('no')\n" + TESTS)
    done = ran(made, "-x", "-k", "broken or exp")
    assert (done.status, made.report()["interrupted"]) == (1, False), done.said
    assert "stopped after 1 failure (-x or --maxfail)" in made.report()["notes"]


def test_run__torch_cannot_be_imported__the_run_has_said_before_what_it_does(tmp_path):
    made = project(tmp_path)
    made.write("shadow/torch.py", "raise ImportError('no torch today')\n")
    path = f"{tmp_path / 'shadow'}:{environment(None).get('PYTHONPATH', '')}"
    done = made.run(environ={"PYTHONPATH": path})
    assert (done.status, done.out) == (4, "seed 0: 1 test file on kernels\n"), done.said


def test_run__one_file_of_several__a_replacement_of_another_is_no_failure(tmp_path):
    made = project(tmp_path)
    made.tests("@autotest(n=2)\ndef cos():\n    return torch.cos(random_tensor(ndim=2))\n", "autotests/autotest_cos.py")
    made.configure(
        candidates=[
            {"name": "kernels", "backend": "substitute", "replace": {"torch.exp": "mykernels.right"}},
            {"name": "cosines", "backend": "substitute", "replace": {"torch.cos": "torch.cos"}},
        ]
    )
    part = ran(made, "autotests/autotest_cos.py")
    nothing = ran(made, "autotests/autotest_cos.py", "--candidate", "kernels")
    whole = ran(made, "autotests", "-q")
    # Status 3 while a run compares nothing at all, or a whole run never calls a replacement.
    assert (part.status, nothing.status, whole.status) == (0, 3, 0), part.said + nothing.said + whole.said
    made.write("autotests/autotest_all.py", TESTS.replace("torch.exp", "torch.sin"))
    assert ran(made, "autotests").status == 1  # A name is missing in the file: it does not import.


def test_run__debugger_in_a_worker__is_broken_and_says_what_to_do(tmp_path):
    made = project(tmp_path)
    made.tests("@autotest(n=1)\ndef exp():\n    breakpoint()\n    return torch.exp(random_tensor(ndim=2))\n")
    done = ran(made)
    assert done.status == 1, done.said
    assert "A worker has no terminal: debug with `ci-autotest run --workers 0`" in made.report()["broken"][0]["message"]
