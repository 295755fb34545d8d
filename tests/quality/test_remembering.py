"""Kernels that remember are suspected in a default run, and honest ones are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.projects import Project
from tests.quality import remembering
from tests.quality.kernel_runs import failures_of_kernel
from tests.tables import thinned

TESTS = """
from ci_autotest import autotest, random, random_tensor, torch

@autotest()
def tanh():
    return torch.tanh(random_tensor())

@autotest()
def softplus():
    return torch.nn.functional.softplus(random_tensor())

@autotest()
def where():
    rows, columns = random(1, 6).to(int), random(1, 6).to(int)
    condition = random_tensor(2, rows, columns, requires_grad=False) > 0
    return torch.where(condition, random_tensor(2, rows, columns), random_tensor(2, rows, columns))

@autotest()
def reshape():
    return torch.reshape(random_tensor(2, 3, 4), (4, 3))

@autotest()
def flatten():
    return torch.flatten(random_tensor(3))

@autotest()
def linear():
    features = random(1, 6).to(int)
    layer = torch.nn.Linear(in_features=features, out_features=random(1, 6).to(int))
    return layer(random_tensor(2, dim1=features))
"""
WRONG, HONEST = remembering.wrong(), remembering.honest()
#: Right without a backward pass, because only what they do to graphs and gradients is wrong.
_OF_GRAPHS = ("gradient", "backward", "double", "saved", "slope", "graph", "last_output", "turned")
OF_VALUES = [name for name in WRONG if not any(word in name for word in _OF_GRAPHS)]
#: What a run of as many cases guarantees.
FORWARD, BACKWARD = 50, 41


def failures_of(name: str, folder: Path, **scope: object) -> list[tuple[str, str]]:
    """Return operator and kind of what twenty cases in one worker show of a kernel."""
    make, operator = remembering.ALL[name]
    return failures_of_kernel(TESTS, operator.rpartition(".")[2], {operator: make()}, folder, **scope)


def test_families__are_as_many_as_they_should_be():
    assert len(WRONG) >= 40
    assert len(HONEST) >= 15


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernel__is_suspected_in_twenty_cases(name, tmp_path):
    found = failures_of(name, tmp_path)
    assert {operator for operator, _ in found} == {WRONG[name][1]}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernel__is_not(name, tmp_path):
    assert failures_of(name, tmp_path) == []


@pytest.mark.parametrize("name", thinned(sorted(OF_VALUES), 4))
def test_wrong_kernel__without_a_backward_pass__is_suspected_too(name, tmp_path):
    found = failures_of(name, tmp_path, forward_only=True)
    assert {operator for operator, _ in found} == {WRONG[name][1]}


@pytest.mark.parametrize("name", thinned(sorted(HONEST), 4))
def test_honest_kernel__without_a_backward_pass__is_not(name, tmp_path):
    assert failures_of(name, tmp_path, forward_only=True) == []


def test_calls__twenty_cases__are_as_many_as_the_docs_say(tmp_path):
    calls = {"forward": 0, "backward": 0}

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            calls["forward"] += 1
            value = torch.tanh(x)
            ctx.save_for_backward(value)
            return value

        @staticmethod
        def backward(ctx, gradient):
            calls["backward"] += 1
            (value,) = ctx.saved_tensors
            return gradient * (1 - value**2)

    remembering.ALL["counted"] = (lambda: Counted.apply, "torch.tanh")
    assert failures_of("counted", tmp_path) == []
    del remembering.ALL["counted"]
    docs = (Path(__file__).parents[2] / "docs" / "explanation" / "stateful.md").read_text()
    assert f"at least {FORWARD} forward calls" in docs
    assert f"{BACKWARD} backward passes" in docs
    assert calls["forward"] >= FORWARD
    assert calls["backward"] >= BACKWARD


def report_of(names: list[str], folder: Path, **row: object) -> tuple[int, dict[str, Any]]:
    """Run the tests on kernels that remember, whose module lies in the project."""
    project = Project(folder, greatest_s=1800)
    project.write("remembering.py", Path(remembering.__file__).read_text("utf-8"))
    return ran(
        project,
        TESTS,
        [
            {
                "name": name, "backend": "substitute", "replace": {remembering.ALL[name][1]: f"remembering.{name}"}, **row,
            }
            for name in names
        ],
    )  # fmt: skip


def ran(project: Project, tests: str, candidates: list[dict[str, object]]) -> tuple[int, dict[str, Any]]:
    """Run tests on candidates with the workers of a default run."""
    project.write("autotest_bodies.py", tests)
    project.configure(paths=["."], candidates=candidates)
    done = project.command("run")
    return done.status, project.report()


FEW = [
    "tanh_gradient_by_address",
    "tanh_value_after_7",
    "tanh_workspace",
    "linear_stale_weight_by_identity",
]


def test_run__kernels_that_remember__are_findings_with_the_fewest_calls(tmp_path):
    status, report = report_of([*FEW, "honest_by_tensor_and_version", "honest_tuned_at_first_call"], tmp_path)
    assert status == 1
    found = {item["candidate"]: item for item in report["findings"]}
    assert sorted(found) == sorted(FEW)
    for name, item in found.items():
        assert (item["outcome"], item["kind"], item["blame"]) == ("misaligned", "stateful", "candidate"), name
        assert (item["confirmed"], item["shrunk"], item["repro_verified"]) == (True, True, True), name
        assert item["operator"] == WRONG[name][1]
    loop = r"    for _ in range\(7\):\n        function\((\w+)\)\n    tanh\w* = function\(\1\)"
    assert re.search(loop, found["tanh_value_after_7"]["program"])
    assert "changes tanh" in found["tanh_workspace"]["program"]
    assert "right alone, wrong after 7 earlier calls" in found["tanh_value_after_7"]["message"]


KERNELS = """
import os
import random
import torch

seen = {}
chance = random.Random(4)


def by_address(x):
    value = seen.setdefault((x.data_ptr(), x.shape), torch.tanh(x).detach())
    return value + (torch.tanh(x) - torch.tanh(x).detach())


has_variable = "KERNELS" in os.environ


def by_variable(x):
    return torch.tanh(x) + float(has_variable)


def by_chance(x):
    return torch.tanh(x) + (0.5 if chance.random() < 0.02 else 0.0)


class Unreadable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError("no kernel reads this")


def unreadable_again(x):
    result = torch.tanh(x)
    was = seen.setdefault(x.data_ptr(), x._version)
    return result if was == x._version else result.as_subclass(Unreadable)


def crashing(x):
    if seen.setdefault(x.data_ptr(), x._version) != x._version:
        os.abort()
    return torch.tanh(x)


sizes = []


def crashing_late(x):
    sizes.append(x.numel())
    if len(sizes) > 60:
        os.abort()
    return torch.tanh(x)
"""


def run(folder: Path, tests: str, candidates: list[dict]) -> tuple[int, dict]:
    project = Project(folder)
    project.write("kernels.py", KERNELS)
    return ran(project, tests, candidates)


def row(function: str, **more: object) -> dict:
    return {"name": "kernel", "backend": "substitute", "replace": {"torch.tanh": f"kernels.{function}"}, **more}


def test_run__kernel_is_wrong_by_chance__is_no_kernel_that_remembers(tmp_path):
    _, report = run(tmp_path, TESTS, [row("by_chance")])
    assert "stateful" not in {item["kind"] for item in report["findings"] if item["outcome"] == "misaligned"}


def test_run__kernel_ends_its_process_in_a_probe__is_a_crash_of_its_operator(tmp_path):
    status, report = run(tmp_path, TESTS, [row("crashing")])
    (found,) = report["findings"]
    assert (status, found["outcome"], found["operator"], found["confirmed"]) == (1, "crashed", "torch.tanh", True)
    assert "copy_" in found["program"]


def test_run__kernel_ends_its_process_after_other_cases__is_a_crash_with_the_calls_that_it_needs(tmp_path):
    status, report = run(tmp_path, TESTS, [row("crashing_late")])
    (found,) = report["findings"]
    assert (status, found["outcome"], found["operator"], found["confirmed"]) == (1, "crashed", "torch.tanh", True)
    assert found["repro_verified"]
    assert found["no_program"] == ""
    assert "it needs the calls before it" in found["message"]
    # As a loop, because it is many calls of one kind.
    assert "for _ in range(60):" in found["program"]


def test_run__result_of_a_probe_cannot_be_read__is_a_finding(tmp_path):
    status, report = run(tmp_path, TESTS, [row("unreadable_again")])
    (found,) = report["findings"]
    assert (status, found["outcome"], found["operator"], found["blame"]) == (1, "misaligned", "torch.tanh", "candidate")
    assert "no kernel reads this" in found["message"]


def test_run__isolated_kernel_and_check_graph__is_unsupported(tmp_path):
    tests = TESTS.replace("@autotest()\ndef tanh", "@autotest(check_graph=True)\ndef tanh")
    _, report = run(tmp_path, tests, [row("by_chance", isolated=True)])
    (found,) = [item for item in report["results"] if item["test"].endswith("::tanh")]
    assert (found["outcome"], found["cases"]["aligned"]) == ("unsupported", 0)
    assert "isolated kernels are not compiled" in found["reason"]


TANH = """
from ci_autotest import autotest, random_tensor, torch

@autotest(n=8, profiles=())
def tanh():
    return torch.tanh(random_tensor(dims=(2,)))
"""


def test_run__isolated_kernel__is_found_and_its_repro_shows_it(tmp_path):
    status, report = run(tmp_path, TANH, [row("by_address", isolated=True)])
    # An allocator that gives an address again in the cases themselves makes a finding there that no process shows again.
    found, *others = sorted(report["findings"], key=lambda item: item["outcome"] == "flaky")
    assert (status, found["kind"], found["repro_verified"]) == (1, "stateful", True)
    assert {item["outcome"] for item in others} <= {"flaky"}


def test_run__kernel_with_env__has_it_at_its_import_and_in_its_repro(tmp_path):
    status, report = run(tmp_path, TANH, [row("by_variable", env={"KERNELS": "1"})])
    (found,) = report["findings"]
    assert (status, found["kind"], found["repro_verified"]) == (1, "value", True)
    script = (tmp_path / "autotest-report" / found["repro"]).read_text()
    assert "os.environ.update({'KERNELS': '1'})" in script


#: Parts of the families, of which one is always run: a finding takes 10 to 20 s.
COUNT = 12
PARTS = [pytest.param(part, marks=pytest.mark.matrix if part else pytest.mark.heavy) for part in range(COUNT)]


@pytest.mark.parametrize("part", PARTS)
def test_run__families__are_found_and_their_repros_show_them(part, tmp_path):
    names = sorted(WRONG)[part::COUNT]
    _, report = report_of(names, tmp_path)
    found = [item for item in report["findings"] if item["outcome"] == "misaligned"]
    assert {item["candidate"] for item in found} == {*names}
    # What goes by addresses may differ from itself too, which is another finding, by chance.
    assert {item["candidate"] for item in found if item["repro_verified"]} == {*names}


@pytest.mark.heavy
def test_run__every_honest_kernel__is_aligned(tmp_path):
    _, report = report_of(sorted(HONEST), tmp_path)
    assert report["findings"] == []
    assert {item["outcome"] for item in report["results"]} == {"aligned", "unsupported"}


def test_run_cases__kernel_frees_what_it_saved_in_its_backward_pass__is_honest(tmp_path):
    class Freeing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.y = x.tanh()
            return ctx.y.clone()

        @staticmethod
        def backward(ctx, gradient):
            y, ctx.y = ctx.y, None
            return gradient * (1 - y**2)

    remembering.ALL["freeing"] = (lambda: Freeing.apply, "torch.tanh")
    assert failures_of("freeing", tmp_path) == []
    del remembering.ALL["freeing"]


STATE_KERNEL = """
import torch

factors = {}

def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    count = input.numel() // input.shape[1] if input.shape[1] else 0
    if not training or running_mean is None or count < 2:
        return torch.nn.functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    with torch.no_grad():
        running_mean.mul_(1 - momentum).add_(input.mean(0), alpha=momentum)
        factor = factors.setdefault(input.shape[1], count / (count - 1))
        running_var.mul_(1 - momentum).add_(input.var(0, unbiased=False) * factor, alpha=momentum)
    return torch.nn.functional.batch_norm(input, None, None, weight, bias, True, momentum, eps)
"""
STATE_TEST = """
from ci_autotest import autotest, random, random_tensor, torch

@autotest(rtol=1e-4, atol=1e-4, profiles=("boundary",))
def batch_norm():
    channels = random(1, 6).to(int)
    return torch.nn.BatchNorm1d(channels)(random_tensor(2, random(2, 9).to(int), channels))
"""


@pytest.mark.heavy
def test_run__state_of_a_module_that_goes_by_earlier_calls__is_a_finding_with_the_modules_that_are_called(tmp_path):
    project = Project(tmp_path)
    project.write("kernels.py", STATE_KERNEL)
    row = {
        "name": "kernels",
        "backend": "substitute",
        "replace": {"torch.nn.functional.batch_norm": "kernels.batch_norm"},
    }
    status, report = ran(project, STATE_TEST, [row])
    assert status == 1
    [finding] = report["findings"]
    assert (finding["kind"], finding["operator"], finding["repro_verified"]) == (
        "stateful",
        "torch.nn.functional.batch_norm",
        True,
    )
    assert finding["program"].count("torch.nn.BatchNorm1d(") == 2
