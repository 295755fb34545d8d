"""`run --speed`: a kernel that does its work three times is slower, and everything that is not timed says why.

No test here looks at a duration: a kernel is planted that is slower on any machine.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.projects import Project

KERNELS = """
import torch


def softmax(x, dim=None):
    for _ in range(2):
        torch._softmax(x, dim, False)
    return torch._softmax(x, dim, False)


def gelu(x, approximate="none"):
    return torch._C._nn.gelu(x, approximate=approximate)


def exp(x):
    return torch.exp(x) if x.numel() < 100_000 else torch.exp(x) + 1


def tanh(x):
    if x.numel() > 100_000:
        import os

        os._exit(3)
    return torch.tanh(x)
"""
TESTS = """
@autotest(profiles=())
def softmax():
    return torch.nn.functional.softmax(random_tensor(ndim=2), dim=1)


@autotest(profiles=())
def gelu():
    return torch.nn.functional.gelu(random_tensor(ndim=2))


@autotest(profiles=())
def exp():
    return torch.exp(random_tensor(ndim=2))


@autotest(profiles=())
def tanh():
    return torch.tanh(random_tensor(ndim=2))


@autotest(profiles=())
def written():
    x = random_tensor(ndim=2, requires_grad=False)
    x += torch.nn.functional.gelu(x)
    return x
"""
#: Without valgrind, which takes minutes to count instructions.
UNCOUNTED = {"PATH": str(Path(sys.executable).parent)}
REPLACED = {
    "torch.nn.functional.softmax": "kernels.softmax", "torch.nn.functional.gelu": "kernels.gelu",
    "torch.exp": "kernels.exp", "torch.tanh": "kernels.tanh",
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    found = Project(tmp_path_factory.mktemp("speed"))
    found.write("kernels.py", KERNELS)
    found.tests(TESTS)
    found.substitute(REPLACED, cases=4, workers=1)
    return found


@pytest.fixture(scope="module")
def timed(project: Project):
    return project.run("--speed", "--fail-on", "slower", environ=UNCOUNTED), project.report()


def of(report, name: str, phase: str = "forward"):
    found = [item for item in report["speed"] if item["test"].endswith(f"::{name}") and item["phase"] == phase]
    assert len(found) == 1, found
    return found[0]


def test_run_speed__kernel_that_works_three_times__is_slower_forward_and_fails_where_asked(timed):
    done, report = timed
    slow = of(report, "softmax")
    assert (slow["verdict"], slow["inputs"], slow["against"]) == ("slower", ["float32[512, 512]"], "reference")
    assert 2 < slow["ratio"]["low"] <= slow["ratio"]["median"] <= slow["ratio"]["high"]
    assert done.status == 1
    assert "softmax on kernels: slower: forward of torch.nn.functional.softmax on float32[512, 512] takes" in done.out


def test_run_speed__same_kernel__is_not_slower(timed):
    _, report = timed
    assert {of(report, "gelu", phase)["verdict"] for phase in ("forward", "backward")} <= {"same", "cannot_tell"}


def test_run_speed__wrong_at_larger_sizes_only__is_misaligned_and_not_timed(timed):
    _, report = timed
    found = of(report, "exp")
    assert (found["verdict"], found["ratio"]) == ("misaligned", None)
    assert found["reason"] == "torch.exp is misaligned at these sizes (value)"


def test_run_speed__ends_its_process_at_larger_sizes__crashed(timed):
    _, report = timed
    found = of(report, "tanh")
    assert (found["verdict"], found["reason"]) == ("crashed", "the worker ended with status 3")


def test_run_speed__body_that_writes_to_its_input__says_that_it_is_not_timed(timed):
    done, report = timed
    reason = "its body writes to its inputs, so that each call gets other ones"
    assert (of(report, "written")["verdict"], of(report, "written")["reason"]) == ("not_timed", reason)
    assert f"1 not timed: {reason}" in done.out


def test_run_speed__baseline_with_the_same_times__fails_no_more_for_what_is_slower(timed, project: Project):
    project.write("baseline/report.json", (project.folder / "autotest-report" / "report.json").read_text("utf-8"))
    words = ("run", "--speed", "--fail-on", "slower", "--set", "slower_factor=1.5", "--baseline", "baseline")
    done = project.command(*words, "autotests/autotest_all.py::softmax", "--output", "again", environ=UNCOUNTED)
    found = of(project.report("again"), "softmax")
    assert (done.status, found["verdict"], found["change"]) == (0, "slower", "same")


def test_run_speed__baseline_that_was_faster__names_what_became_slower(timed, project: Project):
    text = (project.folder / "autotest-report" / "report.json").read_text("utf-8")
    ratio = of(project.report(), "softmax")["ratio"]
    for end in ("low", "median", "high"):
        text = text.replace(f'"{end}": {ratio[end]}', f'"{end}": 1.0')
    project.write("faster/report.json", text)
    words = ("run", "--speed", "--fail-on", "slower", "--baseline", "faster", "--output", "slower")
    done = project.command(*words, "autotests/autotest_all.py::softmax", environ=UNCOUNTED)
    assert (done.status, of(project.report("slower"), "softmax")["change"]) == (1, "slower")
    assert "1 slower than in the baseline" in done.out


def test_run__speed_not_asked_for__times_nothing(project: Project):
    project.command("run", "autotests/autotest_all.py::softmax", "--output", "plain")
    assert project.report("plain")["speed"] == []


def test_run_speed__candidate_in_another_process__says_in_a_sentence_that_it_is_not_timed(tmp_path):
    other = Project(tmp_path)
    other.tests("@autotest(profiles=())\ndef exp():\n    return torch.exp(random_tensor(ndim=2))\n")
    other.configure(candidates=[{"name": "host", "backend": "module", "module": "torch", "speed": True}], cases=2)
    done = other.run()
    assert (done.status, other.report()["speed"]) == (0, [])
    assert "note: host was not timed: it runs in another process" in done.out


def test_run_speed__pass_that_does_the_work_three_times__is_held_against_the_graph_before_it(tmp_path):
    other = Project(tmp_path)
    other.write(
        "passes.py",
        "import torch\n\n\ndef thrice(graph):\n    for node in list(graph.graph.nodes):\n        if node.target is torch.exp:\n"
        "            with graph.graph.inserting_before(node):\n                parts = [graph.graph.call_function("
        "torch.exp, node.args) for _ in range(3)]\n                total = graph.graph.call_function(torch.maximum, "
        "(parts[0], parts[1]))\n                total = graph.graph.call_function(torch.maximum, (total, parts[2]))\n"
        "            node.replace_all_uses_with(total)\n            graph.graph.erase_node(node)\n"
        "    graph.recompile()\n    return graph\n",
    )
    other.tests(
        "@autotest(profiles=())\ndef exp():\n    return torch.exp(random_tensor(ndim=2, requires_grad=False))\n"
    )
    other.configure(
        candidates=[{"name": "pass", "backend": "fx", "transform": "passes.thrice", "speed": True}], cases=2
    )
    done = other.run(environ=UNCOUNTED)
    found = of(other.report(), "exp")
    assert (done.status, found["verdict"], found["against"]) == (0, "slower", "original")
    assert "times the graph before the pass" in done.out


def test_run_speed__stopped_after_the_first_failure__times_nothing(tmp_path):
    other = Project(tmp_path)
    other.write("kernels.py", KERNELS + "\n\ndef abs(x):\n    return torch.abs(x) + 1\n")
    wrong = "\n\n@autotest(profiles=(), n=2000)\ndef abs():\n    return torch.abs(random_tensor(ndim=2))\n"
    other.tests(
        "@autotest(profiles=(), n=4)\ndef gelu():\n    return torch.nn.functional.gelu(random_tensor(ndim=2))\n" + wrong
    )
    other.substitute({"torch.nn.functional.gelu": "kernels.gelu", "torch.abs": "kernels.abs"}, workers=1)
    done = other.run("--speed", "-x", environ=UNCOUNTED)
    assert "stopped after 1 failure (-x or --maxfail)" in other.report()["notes"], done.said
    assert (done.status, other.report()["speed"]) == (1, [])


def test_run_speed__difference_at_larger_sizes_that_a_row_accepts__fails_nothing(tmp_path):
    other = Project(tmp_path)
    other.write("kernels.py", KERNELS)
    other.tests("@autotest(profiles=())\ndef exp():\n    return torch.exp(random_tensor(ndim=2))\n")
    row = {"operator": "torch.exp", "kind": "value", "reason": "table of 100,000"}
    other.substitute({"torch.exp": "kernels.exp"}, cases=2, workers=1, known=[row])
    done = other.run("--speed", environ=UNCOUNTED)
    found = of(other.report(), "exp")
    assert done.status == 0, done.said
    assert (found["verdict"], found["operator"], found["kind"]) == ("misaligned", "torch.exp", "value")
    assert (found["known"], "matched no finding" in done.said) == ("table of 100,000", False)


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_run_speed__with_valgrind__counts_three_times_the_instructions(project: Project):
    patient = Project(project.folder, greatest_s=1800)  # Callgrind is 50 times slower, on a loaded machine more.
    done = patient.command("run", "--speed", "autotests/autotest_all.py::softmax", "--output", "counted")
    counts = of(project.report("counted"), "softmax")["instructions"]
    assert done.status == 0
    assert 2 < counts["candidate"] / counts["reference"] < 3.1
    assert "times the instructions" in done.out
