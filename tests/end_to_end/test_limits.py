"""A run keeps its budget and its memory, plans by what it has learned, and remembers what it found."""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import GREATEST_S, HEAD, Done, Project, ended, finding_of, outcomes, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.heavy  # most take ten seconds: a run and its findings, twice
KERNELS = """
import os
import time
from pathlib import Path

import torch


def exp(x):
    time.sleep(0.02)
    return torch.Tensor.exp(x)


def tanh(x):
    if (Path(__file__).parent / "aborts").exists():
        os.abort()
    return torch.Tensor.tanh(x) * (1.001 if not (Path(__file__).parent / "mended").exists() else 1)


def sin(x):
    held = []
    while True:
        held.append(bytearray(b"x") * (32 << 20))


HELD = []


def square(x):
    # Ends the process at the fifth call: alone no case does, a case called several times does.
    HELD.append(x)
    if len(HELD) == 5:
        os.kill(os.getpid(), 11)
    return torch.Tensor.square(x)


def sqrt(x):
    # Ends the process at the 25th call: nothing that one case is asked for does.
    HELD.append(x)
    if len(HELD) == 25:
        os.kill(os.getpid(), 11)
    return torch.Tensor.sqrt(x)


def cos(x):
    # Ends the process at the third call, once; hangs at the third call of every other process.
    HELD.append(x)
    ended = Path(__file__).parent / "ended"
    if len(HELD) == 3 and not ended.exists():
        ended.touch()
        os.kill(os.getpid(), 11)
    time.sleep(1000 if len(HELD) == 3 else 0)
    return torch.Tensor.cos(x)


def log(x):
    HELD.append(x)
    time.sleep(1000 if len(HELD) == 3 else 0)
    return torch.Tensor.log(x)
"""
STOPPED = """

def wrong(x):
    (Path(__file__).parent / "called").touch()
    return torch.Tensor.cos(x) * 1.5


def exp(x):
    # Of another task of the one worker: what was called before it has been told.
    if (Path(__file__).parent / "called").exists():
        (Path(__file__).parent / "told").touch()
    time.sleep(0.02)
    return torch.Tensor.exp(x)


def tanh(x):
    if (Path(__file__).parent / "hangs").exists():
        (Path(__file__).parent / "tried").touch()
        time.sleep(1000)
    return torch.Tensor.tanh(x) * 1.001
"""
BODY = """
@autotest(n={cases}, auto_backward=False)
def {name}():
    return torch.{operator}(random_tensor(ndim=1, dim0=4, low=0, high=1, requires_grad=False))

"""


def project_of(folder: Path, tests: dict[str, tuple[str, int]], **keys: Any) -> Project:
    """Return a project with a test by name: its operator and cases."""
    project = Project(folder)
    project.substitute({f"torch.{operator}": f"mykernels.{operator}" for operator, _ in tests.values()}, **keys)
    project.write("mykernels.py", KERNELS)
    project.tests("".join(BODY.format(name=n, operator=o, cases=c) for n, (o, c) in tests.items()))
    return project


@pytest.fixture(scope="module")
def start_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the seconds that the shortest run takes on this machine, as loaded as it is: budgets are given in these."""
    project = project_of(tmp_path_factory.mktemp("start"), {"fine": ("exp", 1)})
    begun = time.monotonic()
    assert project.run().status == 0
    return time.monotonic() - begun


def stopped(project: Project, sign: Path) -> Done:
    """Start a run, and stop it as Ctrl-C does when a file of that name is there."""
    process = project.start("run", "--workers", "1")
    is_there = wait_until(sign.exists, GREATEST_S)
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert is_there, done.said
    return done


def counts(project: Project, output: str = "autotest-report") -> dict[str, dict[str, int]]:
    return {
        item["test"].rpartition("::")[2]: {name: count for name, count in item["cases"].items() if count}
        for item in project.report(output)["results"]
    }


def test_run__budget__is_kept_breadth_first_and_what_was_not_run_is_named(start_s: float, tmp_path: Path):
    # Twenty tests of a thousand cases of 20 ms: 400 s of work.
    project = project_of(tmp_path, {f"t{i}": ("exp", 1000) for i in range(20)} | {"wrong": ("tanh", 1000)})
    done = project.run("--budget", f"{math.ceil(20 + 3 * start_s)}s")
    found = counts(project)
    ran = [1000 - case.get("not_run", 0) for case in found.values()]
    assert sum(ran) < 21_000, done.said
    assert max(ran) < 10 or min(ran) >= 1
    note = next(note for note in project.report()["notes"] if note.startswith("not run: "))
    assert all(f"::{name} on kernels" in note for name in found if found[name].get("not_run"))
    finding = finding_of(project.report(), "tanh")
    assert (finding["confirmed"], finding["shrunk"]) == (True, True)  # It had its share.


def test_run__case_without_end_of_memory__is_crashed_and_says_the_limit(tmp_path: Path):
    project = project_of(tmp_path, {"leak": ("sin", 1), "fine": ("exp", 3)})
    done = project.run("--memory", "768MiB", "--budget", "45s")  # looking at it takes a leak for each trial
    assert counts(project) == {"leak": {"crashed": 1}, "fine": {"aligned": 3}}, done.said
    assert re.search(r"held \d\.\d GiB of memory, more than its limit of 0\.8 GiB", done.out)


def test_run__crash_that_needs_calls_before_it__is_shown_by_a_program_of_calls(tmp_path: Path):
    project = project_of(tmp_path, {"fifth": ("square", 9)})
    finding = crash_of(project, "fifth", "square", 9)
    assert "alone it does not" not in finding["detail"]
    assert "    for _ in range(4):\n        function(x)\n" in finding["program"]
    assert finding["program"].endswith("  # crashed")
    replayed = project.command("replay", str(project.folder / "autotest-report" / "findings" / finding["id"]))
    assert replayed.status == 1, replayed.said
    assert "crashed" in replayed.out


def test_run__crash_that_needs_a_history__says_so(tmp_path: Path):
    finding = crash_of(project_of(tmp_path, {"late": ("sqrt", 30)}), "late", "sqrt", 30)
    assert "it needs the calls before it" in finding["message"]
    assert finding["repro_verified"]
    assert "for _ in range(24):" in finding["program"]


def crash_of(project: Project, name: str, operator: str, cases: int) -> dict[str, Any]:
    done = project.run()
    found = counts(project)[name]
    assert found["crashed"] >= 1, done.said
    assert "flaky" not in found
    assert sum(found.values()) == cases
    assert done.status == 1
    finding = finding_of(project.report(), operator)
    assert (finding["outcome"], finding["kind"], finding["confirmed"]) == ("crashed", "crash", True)
    return finding


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project after a run with a finding."""
    project = project_of(tmp_path_factory.mktemp("db"), {"wrong": ("tanh", 4), "slow": ("exp", 60)})
    done = project.run("--output", "first")
    assert done.status == 1, done.said
    return project


def test_run__finding_of_an_earlier_run__is_found_by_its_program_alone(remembering: Project):
    # One case, of another seed, and of the other test only: nothing but the database shows the finding.
    project = remembering
    folder = project.folder
    entry = next((folder / ".autotest" / "findings").iterdir())
    assert sorted(path.name for path in entry.iterdir()) == ["entry.json", "program.json", "tensors.safetensors"]
    project.write("autotests/autotest_all.py", (folder / "autotests/autotest_all.py").read_text("utf-8"))
    done = project.run("--cases", "1", "--seed", "99", "--output", "again")
    finding = finding_of(project.report("again"), "tanh")
    assert (done.status, finding["confirmed"], finding["repro_verified"]) == (1, True, True), done.said


SLOW_REST = """
@autotest(n=4000, auto_backward=False)
def slow():
    return torch.exp(random_tensor(ndim=1, dim0=4, requires_grad=False))
"""


def without_its_case(project: Project) -> None:
    """Write the test with the finding anew: no case of it shows the finding any more."""
    project.tests(BODY.format(name="wrong", operator="exp", cases=2) + SLOW_REST)


def test_run__only_an_earlier_run_has_cases_of_a_finding__every_surface_says_so(tmp_path: Path):
    project = project_of(tmp_path, {"wrong": ("tanh", 4), "slow": ("exp", 2)})
    assert project.run().status == 1
    without_its_case(project)
    done = project.run("--cases", "2")
    report = project.report()
    finding = finding_of(report, "tanh")
    folder = tmp_path / "autotest-report" / "findings" / finding["id"]
    said = (
        f"no case of this run shows it: an earlier run found it, and its program in .autotest/findings/{finding['id']}"
    )
    assert (done.status, finding["earlier"], finding["cases"], finding["repro_verified"]) == (1, True, 0, True), (
        done.said
    )
    assert outcomes(report)["wrong", "kernels"] == "aligned"
    junit = (tmp_path / "autotest-report" / "junit.xml").read_text("utf-8")
    page = (folder / "README.md").read_text("utf-8")
    assert [said in text for text in (done.out, junit, page)] == [True] * 3
    assert "not verified" not in page
    # What the sentence says to do, done.
    shutil.rmtree(tmp_path / ".autotest" / "findings" / finding["id"])
    project.substitute({"torch.exp": "mykernels.exp"})
    assert project.run("--cases", "2").status == 0


def test_run__stopped__tells_what_it_and_an_earlier_run_have_seen_and_forgets_nothing(tmp_path: Path):
    project = project_of(tmp_path, {"wrong": ("tanh", 4), "slow": ("exp", 2)})
    assert project.run().status == 1
    kept = sorted(path.name for path in (tmp_path / ".autotest" / "findings").iterdir())
    without_its_case(project)
    replace = {"torch.exp": "mykernels.exp", "torch.tanh": "mykernels.tanh", "torch.cos": "mykernels.wrong"}
    project.substitute(replace)
    project.write("mykernels.py", KERNELS + STOPPED)
    project.tests(
        "@autotest(n=1)\ndef seen():\n    return torch.cos(random_tensor(ndim=1))\n\n", "autotests/autotest_a.py"
    )
    done = stopped(project, tmp_path / "told")
    report = project.report()
    told = {
        item["operator"]: (item["confirmed"], item["earlier"], item["repro_verified"]) for item in report["findings"]
    }
    assert (done.status, report["interrupted"]) == (130, True), done.said
    assert told == {"torch.cos": (False, False, False), "torch.tanh": (True, True, False)}, done.said
    assert finding_of(report, "cos")["of_cases"] == 1
    assert "0 misaligned" not in done.out
    assert sorted(path.name for path in (tmp_path / ".autotest" / "findings").iterdir()) == kept
    # Stopped while what was kept is tried, before any case.
    (tmp_path / "hangs").touch()
    done = stopped(project, tmp_path / "tried")
    assert done.status == 130, done.said
    assert sorted(path.name for path in (tmp_path / ".autotest" / "findings").iterdir()) == kept


def test_run__fixed__is_told_once_and_kept_as_a_regression_case(tmp_path: Path):
    project = project_of(tmp_path, {"wrong": ("tanh", 4)})
    assert project.run("--output", "first").status == 1
    (tmp_path / "mended").touch()
    done = project.run("--output", "second")
    report = project.report("second")
    assert (done.status, report["fixed"]) == (0, ["kernels torch.tanh value"]), done.said
    assert [note.startswith("fixed: torch.tanh (value) on kernels no longer fails") for note in report["notes"]] == [
        True
    ]
    third = project.run("--output", "third")
    assert (third.status, project.report("third")["fixed"]) == (0, [])
    (tmp_path / "mended").unlink()
    fourth = project.run("--seed", "5", "--output", "fourth")
    assert fourth.status == 1, fourth.said
    assert finding_of(project.report("fourth"), "tanh")["confirmed"]


def test_run__program_of_the_database_names_what_is_not_allowed__is_refused(tmp_path: Path):
    project = project_of(tmp_path, {"wrong": ("tanh", 2)})
    assert project.run("--output", "first").status == 1
    program = next((tmp_path / ".autotest" / "findings").iterdir()) / "program.json"
    program.write_text(program.read_text("utf-8").replace("torch.tanh", "os.system"))
    done = project.run("--output", "second")
    assert done.status == 1
    assert any("of an earlier run is refused" in note for note in project.report("second")["notes"]), done.said


def test_list__shards__are_printed_with_the_time_that_they_take(remembering: Project):
    done = remembering.command("list", "--shards", "2")
    assert done.status == 0, done.said
    heads = re.findall(r"^shard (\d)/2: (\d+) cases of \d tests?, about ([\d.]+) s$", done.out, re.MULTILINE)
    assert [head[0] for head in heads] == ["1", "2"], done.out
    assert sum(int(head[1]) for head in heads) == 64
    times = [float(head[2]) for head in heads]
    assert max(times) - min(times) <= 10 * max(learned_s(project=remembering))


def learned_s(project: Project) -> list[float]:
    """Return seconds of a case by test, rounded up to a power of two as the plan does."""
    path = project.folder / ".autotest" / "durations.json"
    found = json.loads(path.read_text("utf-8"))["tests"].values()
    return [2.0 ** math.ceil(math.log2(item["case_s"])) for item in found]


def test_report__shards__are_what_was_listed_and_their_database_is_kept(tmp_path: Path):
    project = project_of(tmp_path, {"wrong": ("tanh", 12), "slow": ("exp", 25)})
    for index in (1, 2):
        project.run("--shard", f"{index}/2", "--output", f"s{index}")
    assert not (tmp_path / ".autotest").exists()
    done = project.command("report", "s1", "s2", "--output", "merged")
    assert (done.status, outcomes(project.report("merged"))["slow", "kernels"]) == (1, "aligned"), done.said
    assert counts(project, "merged") == {"wrong": {"misaligned": 12}, "slow": {"aligned": 25}}
    assert (tmp_path / ".autotest" / "durations.json").is_file()
    finding = finding_of(project.report("merged"), "tanh")
    assert (tmp_path / "merged" / finding["repro"]).is_file()
    # Planned anew, by what was learned meanwhile: no shard of the same run.
    project.run("--shard", "2/2", "--output", "foreign", "--cases", "13")
    refused = project.command("report", "s1", "foreign", "--output", "refused")
    assert (refused.status, "different plans" in refused.err) == (2, True), refused.said


def test_run__budget_ends_while_a_crash_is_looked_into__is_reported_and_fails(start_s: float, tmp_path: Path):
    project = project_of(tmp_path, {"once": ("cos", 50)})
    done = project.run("--budget", f"{math.ceil(4 + 3 * start_s)}s")
    found = counts(project)["once"]
    assert (done.status, found["crashed"], found["crashed"] + found["not_run"] + found.get("aligned", 0)) == (1, 1, 50)
    (finding,) = project.report()["findings"]
    assert (finding["outcome"], finding["kind"], finding["confirmed"]) == ("crashed", "crash", False), done.said
    assert "seen once" in finding["detail"] or "the time for findings was used up" in finding["detail"]
    assert "SIGSEGV" in done.out
    assert f"{found['not_run']} of 50 cases of" in done.out, "not left alone for the crash, but not run"


def test_run__budget_ends_in_a_hanging_case__names_it(start_s: float, tmp_path: Path):
    project = project_of(tmp_path, {"hang": ("log", 50)})
    done = project.run("--budget", f"{math.ceil(4 + 3 * start_s)}s")
    (note,) = [note for note in project.report()["notes"] if "had been running" in note]
    pattern = r"case 2 of autotests/autotest_all.py::hang on kernels had been running for \d+ s when the run ended"
    assert re.fullmatch(pattern, note), note
    assert note in done.out


def test_run__finding_of_an_earlier_run_ends_its_worker_by_now__is_one_finding(tmp_path: Path):
    project = project_of(tmp_path, {"wrong": ("tanh", 4)})
    assert project.run("--output", "first").status == 1
    (tmp_path / "aborts").touch()
    done = project.run("--output", "second")
    assert [item["kind"] for item in project.report("second")["findings"]] == ["crash"], done.said


@pytest.mark.heavy
def test_run__finding_whose_case_is_unsupported_now__is_not_called_fixed(tmp_path: Path):
    project = Project(tmp_path)
    project.write(
        "autotest.yml", "candidates: [{name: kernels, backend: substitute, replace: {torch.tanh: mine.tanh}}]\n"
    )
    project.write(
        "autotests/autotest_tanh.py", HEAD + "@autotest()\ndef tanh():\n    return torch.tanh(random_tensor())\n"
    )
    project.write("mine.py", "import torch\n\n\ndef tanh(x):\n    return torch.tanh(x) + 1\n")
    assert project.run("--output", "first").status == 1
    project.write("mine.py", "def tanh(x):\n    raise NotImplementedError('not yet')\n")
    done = project.run("--output", "second")
    report = project.report("second")
    assert (done.status, report["fixed"]) == (3, []), done.said
    assert [note for note in report["notes"] if "was not run again: its case is unsupported now" in note]
