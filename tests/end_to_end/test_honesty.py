"""Never green without a test: whatever a test or a kernel does, what was not compared is not called aligned."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest.doc_links import Page, more
from tests.projects import Project, finding_of, outcomes
from tests.tables import crossed

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = """
import torch


def exp(x):
    return torch.Tensor.exp(x)


def tanh(x):
    return torch.Tensor.tanh(x) + 1


def argsort(x, **rest):
    raise AssertionError("never called")
"""
#: The outcomes that say that something was held against the reference.
COMPARED = {"aligned", "misaligned", "crashed", "timed_out", "flaky"}


def project_in(folder: Path, tests: str, *replaced: str, **keys: Any) -> Project:
    project = Project(folder)
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in replaced}, **keys)
    project.write("mykernels.py", KERNELS)
    project.tests(tests)
    return project


def test_run__test_touches_no_replaced_operator__is_not_aligned(tmp_path: Path):
    project = project_in(
        tmp_path,
        "@autotest(n=2)\ndef other():\n    return torch.sin(random_tensor()) * 2\n\n\n"
        "@autotest(n=2)\ndef exp():\n    return random_tensor().exp()\n",
        "exp",
    )
    done = project.run()
    report = project.report()
    (other,) = [item for item in report["results"] if item["test"].endswith("::other")]
    assert outcomes(report) == {("other", "kernels"): "unsupported", ("exp", "kernels"): "aligned"}
    assert other["reason"] == "no call was replaced: torch.exp did not occur; operators called: torch.mul, torch.sin"
    assert (done.status, report["summary"]["aligned"], report["summary"]["unsupported"]) == (0, 1, 1)


def test_run__kernel_raises_what_is_no_exception__is_misaligned_and_reproduced(tmp_path: Path):
    project = project_in(
        tmp_path,
        "@autotest(n=2)\ndef exp():\n    return random_tensor().exp()\n\n\n"
        "@autotest(n=2)\ndef tanh():\n    return random_tensor().tanh()\n",
        "exp", "tanh",
    )  # fmt: skip
    project.write("mykernels.py", KERNELS.replace("return torch.Tensor.exp(x)", "raise KeyboardInterrupt"))
    done = project.run()
    report = project.report()
    assert outcomes(report) == {("exp", "kernels"): "misaligned", ("tanh", "kernels"): "misaligned"}
    found = finding_of(report, "exp")
    assert (found["kind"], found["blame"], found["repro_verified"]) == ("error", "candidate", True)
    assert done.status == 1
    assert project.repro(found).status == 1


def test_run__two_tests_of_one_name__is_an_error_that_names_both_lines(tmp_path: Path):
    body = "@autotest(n=2)\ndef exp():\n    return random_tensor().exp()\n"
    project = project_in(tmp_path, f"{body}\n\n{body}", "exp")
    done = project.run()
    lines = [
        i
        for i, line in enumerate((tmp_path / "autotests/autotest_all.py").read_text().splitlines(), 1)
        if "def exp" in line
    ]
    said = f"autotest_all.py defines exp in line {lines[0]} and again in line {lines[1]}: the first would never run."
    assert said in done.said
    assert done.status == 1


def test_run__only_test_touches_no_replaced_operator__is_3(tmp_path: Path):
    project = project_in(tmp_path, "@autotest(n=2)\ndef other():\n    return torch.sin(random_tensor())\n", "exp")
    done = project.run()
    assert (done.status, outcomes(project.report())) == (3, {("other", "kernels"): "unsupported"})
    assert "✗ nothing was compared" in done.out


def test_run__a_replacement_is_never_called__is_3_with_the_spellings_seen(tmp_path: Path):
    project = project_in(
        tmp_path, "@autotest(n=2)\ndef exp():\n    return random_tensor().exp() + 1\n", "exp", "argsort"
    )
    done = project.run()
    report = project.report()
    note = (
        "candidate 'kernels': the replacement of torch.argsort was never called. Operators that were called: "
        "torch.add, torch.exp. Correct the spelling, or add a test that uses it." + more(Page.NEVER_CALLED)
    )
    assert (done.status, report["exit_code"], report["notes"]) == (3, 3, [note]), done.said
    assert f"note: {note}" in done.out
    assert done.out.splitlines()[-2].startswith("✗ ")
    assert "0 of 1" not in done.out


#: What a test file does to the process that compares. The kernel is wrong in every element all the same.
PATCHES = {
    "functions": """
torch.equal = torch.Tensor.equal = lambda *args: True
torch.allclose = torch.isclose = torch.Tensor.isclose = lambda *args, **rest: true()
import ci_autotest.alignment.compare as ours
ours.compare = lambda *args, **rest: None
""",
    "operators": """
for name in ("__eq__", "eq", "__le__", "le", "__lt__", "lt"):
    setattr(torch.Tensor, name, lambda *args, **rest: true())
for name in ("__ne__", "ne", "__gt__", "gt", "__sub__", "sub", "abs", "__abs__"):
    setattr(torch.Tensor, name, lambda *args, **rest: false())
""",
    "reductions": """
torch.all = torch.Tensor.all = lambda *args, **rest: true()
torch.any = torch.Tensor.any = lambda *args, **rest: false()
torch.Tensor.__bool__ = lambda self: True
""",
}


@pytest.mark.parametrize(
    ("name", "layout"), crossed({name: name for name in PATCHES}, {"contiguous": "", "transposed": ".t()"})
)
def test_run__test_file_patches_torch__a_wrong_kernel_is_not_green(name: str, layout: str, tmp_path: Path):
    """A patch that the run cannot see through may break the run, but it may not make it end with 0."""
    project = project_in(tmp_path, "", "tanh")
    project.tests(
        "import torch as real\n\nTRUE, FALSE = real.tensor(True), real.tensor(False)\n"
        "true, false = TRUE.clone, FALSE.clone\n"
        f"torch, ours_torch = real, torch\n{PATCHES[name]}\n\n\n"
        f"@autotest(n=2)\ndef tanh():\n    return ours_torch.tanh(random_tensor(ndim=2, requires_grad=False){layout})\n"
    )
    done = project.run()
    report = project.report()
    assert done.status == 1, done.said
    assert outcomes(report) != {("tanh", "kernels"): "aligned"}
    assert [item for item in report["broken"] if "NameError" in item["message"]] == []


EXP = "@autotest(n=3)\ndef test():\n    return random_tensor().exp()\n"
SILENT_ENDS = {
    "at_import": f"import os\nos._exit(0)\n\n\n{EXP}",
    "at_import_once": "import os, pathlib\nseen = pathlib.Path('seen')\nif not seen.exists():\n"
    f"    seen.touch()\n    os._exit(0)\n\n\n{EXP}",
    "in_a_body": EXP.replace("return", "__import__('os')._exit(0)\n    return"),
    "after_an_operator": EXP.replace("return random_tensor()", "x = random_tensor()").replace(
        ".exp()", ".exp()\n    __import__('os')._exit(0)\n    return x"
    ),
}


def test_run__processes_end_silently__no_test_is_green(tmp_path: Path):
    project = project_in(tmp_path, "", "exp")
    for name, tests in SILENT_ENDS.items():
        project.tests(tests, f"autotests/autotest_{name}.py")
    done = project.run()
    report = project.report()
    assert (done.status, report["exit_code"]) == (1, 1), done.said
    assert sorted(item["test"].partition("::")[0] for item in report["broken"]) == [
        f"autotests/autotest_{name}.py" for name in sorted(SILENT_ENDS)
    ]
    assert [item for item in report["results"] if item["outcome"] == "aligned"] == []
    assert "✓" not in done.out


def test_run__test_overwrites_the_report__the_report_is_the_runs(tmp_path: Path):
    """What a test writes to the output folder while it runs is replaced; nothing of the run is made of it."""
    forged = '{"schema": "ci-autotest/report/1", "exit_code": 0}'
    project = project_in(
        tmp_path,
        "from pathlib import Path\n\n\n"
        "@autotest(n=2)\ndef tanh():\n"
        "    out = Path(__file__).parents[1] / 'autotest-report'\n"
        "    (out / 'findings').mkdir(parents=True, exist_ok=True)\n"
        "    for name in ('report.json', 'junit.xml', 'summary.md', 'comment.md', 'findings/forged'):\n"
        f"        (out / name).write_text({forged!r})\n"
        "    return random_tensor(ndim=1).tanh()\n",
        "tanh",
    )
    done = project.run()
    report = project.report()
    output = tmp_path / "autotest-report"
    assert (done.status, report["exit_code"], outcomes(report)) == (1, 1, {("tanh", "kernels"): "misaligned"})
    kept = [name for name in ("report.json", "junit.xml", "summary.md", "comment.md")
            if (output / name).read_text("utf-8") == forged]  # fmt: skip
    assert kept == []
    assert (output / finding_of(report, "tanh")["repro"]).is_file()


def test_run__output_folder_is_removed_by_a_test__the_report_is_there(tmp_path: Path):
    project = project_in(
        tmp_path,
        "import shutil\nfrom pathlib import Path\n\n\n"
        "@autotest(n=2)\ndef exp():\n"
        "    shutil.rmtree(Path(__file__).parents[1] / 'autotest-report', ignore_errors=True)\n"
        "    return random_tensor(ndim=1).exp()\n",
        "exp",
    )
    done = project.run()
    assert (done.status, project.report()["exit_code"]) == (0, 0), done.said


def test_run__compiled_candidate_compiles_nothing__is_not_aligned(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "compiled", "backend": "torch.compile", "options": {"backend": "eager"}}])
    project.tests(
        "@autotest(n=2)\ndef same():\n    x = random_tensor(ndim=1)\n    return x\n\n\n"
        "@autotest(n=2)\ndef exp():\n    return random_tensor(ndim=1).exp()\n"
    )
    done = project.run()
    found = outcomes(project.report())
    assert (found["exp", "compiled"], found["same", "compiled"] in COMPARED) == ("aligned", False), done.said
    assert done.status in {1, 3}


SECRETS = """
GITHUB_TOKEN GH_TOKEN ACTIONS_RUNTIME_TOKEN ACTIONS_ID_TOKEN_REQUEST_TOKEN ACTIONS_ID_TOKEN_REQUEST_URL
ACTIONS_RUNTIME_URL INPUT_GITHUB_TOKEN INPUT_GITHUB-TOKEN MY_PASSWORD MY_SECRET my_token SOME_API_KEY AWS_ACCESS_KEY_ID
AWS_SECRET_ACCESS_KEY GITHUB_OUTPUT GITHUB_ENV GITHUB_PATH GITHUB_STEP_SUMMARY GITHUB_STATE
"""


def test_run__workers_environment__holds_no_secret(tmp_path: Path):
    project = project_in(
        tmp_path,
        "import json, os\nfrom pathlib import Path\n\n"
        "Path(__file__).with_suffix('.json').write_text(json.dumps(dict(os.environ)))\n\n\n"
        "@autotest(n=1)\ndef exp():\n    return random_tensor().exp()\n",
        "exp",
    )
    secret = dict.fromkeys(SECRETS.split(), "hidden")
    done = project.run(environ={**secret, "KEPT": "yes"})
    seen = json.loads((tmp_path / "autotests" / "autotest_all.json").read_text("utf-8"))
    assert (done.status, seen["KEPT"]) == (0, "yes"), done.said
    assert sorted(name for name in seen if seen[name] == "hidden") == []


def test_run__candidate_returns_what_cannot_be_read__costs_no_other_candidate_its_finding(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(
        candidates=[
            {"name": name, "backend": "substitute", "replace": {"torch.tanh": f"mykernels.{name}"}}
            for name in ("unreadable", "wrong")
        ]
    )
    project.write(
        "mykernels.py",
        "import torch\n\n\ndef unreadable(x):\n    return torch.empty(x.shape, device='meta')\n\n\n"
        "def wrong(x):\n    return torch.Tensor.tanh(x) + 1\n",
    )
    project.tests("@autotest(n=2)\ndef tanh():\n    return torch.tanh(random_tensor(ndim=2, requires_grad=False))\n")
    done = project.run()
    found = {item["candidate"]: item["outcome"] for item in project.report()["results"]}
    assert (done.status, found) == (1, {"unreadable": "misaligned", "wrong": "misaligned"})


#: Wrong in the first processes that call it, or in every one that compares, which a repro does by itself.
PASSING = """
import os
import sys
from pathlib import Path

import torch

SEEN = Path(__file__).with_name("seen.txt")


def exp(x):
    seen = SEEN.read_text().split() if SEEN.exists() else []
    if str(os.getpid()) not in seen:
        seen.append(str(os.getpid()))
        SEEN.write_text(" ".join(seen))
    return torch.Tensor.exp(x) + (seen.index(str(os.getpid())) < 2)


def tanh(x):
    return torch.Tensor.tanh(x) + ("ci_autotest.alignment" in sys.modules)
"""


@pytest.mark.parametrize(
    ("name", "outcome", "said"),
    [
        ("exp", "flaky", "in a fresh process its saved program is aligned, and its repro ended with status 0"),
        (
            "tanh",
            "misaligned",
            "repro not verified: run alone it ended with status 0, but the saved program fails again",
        ),
    ],
)
def test_run__repro_says_that_all_is_well__the_saved_program_is_run_once_more(
    name: str, outcome: str, said: str, tmp_path: Path
):
    project = project_in(tmp_path, f"@autotest(n=1)\ndef a_test():\n    return torch.{name}(random_tensor())\n", name)
    project.write("mykernels.py", PASSING)
    done = project.run("--workers", "1")
    report = project.report()
    found = finding_of(report, name)
    assert (found["outcome"], found["confirmed"], found["repro_verified"]) == (outcome, outcome != "flaky", False)
    assert said in found["message"]
    assert said in done.out


#: What a kernel may say of itself: our words for what lacks, torch's words, its own, a whole sentence of another reason.
WORDS = {
    "ours": "mykernels has no kernel of exp yet",
    "its own": "exp is not written yet",
    "torch's": "Could not run 'aten::exp' with arguments from the 'CPU' backend",
    "of another reason": "no call was replaced: torch.exp did not occur; operators called: none",
}


@pytest.mark.parametrize(("words", "isolated"), crossed(WORDS, {"in the worker": False, "isolated": True}))
def test_run__kernel_that_is_not_written__ends_alike_in_whatever_words(tmp_path: Path, words: str, *, isolated: bool):
    kernels = f"def exp(x):\n    raise NotImplementedError({words!r})\n\n\ndef sin(x):\n    return x.sin()\n"
    project = Project(tmp_path)
    replace = {"torch.exp": "mykernels.exp", "torch.sin": "mykernels.sin"}
    project.configure(candidates=[{"name": "k", "backend": "substitute", "replace": replace, "isolated": isolated}])
    project.write("mykernels.py", kernels)
    bodies = (f"@autotest(n=2)\ndef {name}():\n    return random_tensor().{name}()\n" for name in ("exp", "sin"))
    project.tests("\n\n".join(bodies))
    done = project.run()
    (exp,) = [item for item in project.report()["results"] if item["test"].endswith("::exp")]
    (told,) = exp["unsupported"]
    assert (done.status, told["reason"], told["cases"]) == (3, "not_implemented", 2)
    assert words in told["details"][0]


def test_run__some_cases_unsupported__every_file_says_how_many_and_why(tmp_path: Path):
    kernels = (
        "import torch\n\n\ndef exp(x):\n    if x.shape[0] > 2:\n        raise NotImplementedError('long rows')\n"
        "    return torch.Tensor.exp(x)\n"
    )
    project = project_in(
        tmp_path, "@autotest(n=20)\ndef exp():\n    return random_tensor(1, random(1, 5).to(int)).exp()\n", "exp"
    )
    project.write("mykernels.py", kernels)
    done = project.run()
    (item,) = project.report()["results"]
    counts = item["cases"]
    assert counts["unsupported"] > 0 < counts["aligned"]
    assert item["unsupported"] == [
        {"reason": "not_implemented", "cases": counts["unsupported"], "details": item["unsupported"][0]["details"]}
    ]
    said = f"{counts['unsupported']} of 20 cases unsupported: {counts['unsupported']} not implemented"
    output = tmp_path / "autotest-report"
    assert said in (output / "junit.xml").read_text("utf-8")
    assert said in (output / "summary.md").read_text("utf-8")
    assert said in done.out
    assert done.status == 0
    assert "✓" not in done.out
