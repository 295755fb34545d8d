"""What a whole run makes of what differs from itself, of lost aliases, of accumulated error and of one fault in two programs."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import nullcontext
from types import ModuleType

import pytest

from ci_autotest.report import report_json
from tests.finding_words import missing_words
from tests.projects import Project, environment, finding_of, together

KERNELS = """
import ctypes
import os

import torch

calls, answers = [], {}


def rsqrt(x):
    calls.append(1)
    return torch.rsqrt(x) + len(calls) % 2


def transpose(x, i, j):
    return x.transpose(i, j).clone()


def mul(x, y):
    return torch.mul(x, y) * (1 + 9e-7)


def exp(x):
    return torch.exp(x) * 1.01


def eigh(x):
    values, vectors = torch.linalg.eigh(x)
    return values, -vectors


def sort(x, dim=-1, **how):
    found = torch.sort(x, dim=dim)
    return found.values, found.indices.flip(dim)


def bitwise_and(x, y):
    return x & y ^ 1


def scale_(x, factor):
    return x.mul_(factor + 1)


def tanh(x):
    return torch.tanh(x) + (os.environ.get("FAST_TANH") == "1")


def linear(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias) + (weight.abs().sum() > 1)


@torch.library.custom_op("allkinds::gelu", mutates_args=())
def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x)


@gelu.register_fake
def _(x):
    return x.new_empty(x.numel() + 1)


def amax(x):
    memory = (ctypes.c_float * (x.numel() + 1)).from_address(x.data_ptr())
    memory[x.numel()] = 7.0
    return torch.amax(x)


def sigmoid(x):
    return answers.setdefault(tuple(x.shape), torch.sigmoid(x))
"""
RIGHT = """
import torch

from torch import amax, bitwise_and, exp, mul, rsqrt, sigmoid, sort, tanh, transpose
from torch.linalg import eigh
from torch.nn.functional import linear


def scale_(x, factor):
    return x.mul_(factor)


@torch.library.custom_op("allkinds::gelu", mutates_args=())
def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x)


@gelu.register_fake
def _(x):
    return torch.empty_like(x)
"""
OPERATORS = """
def scale_(x, factor):
    return x.mul_(factor)
"""
TESTS = """
from operators import scale_


@autotest(n=2)
def rsqrt():
    return torch.rsqrt(random_tensor(ndim=2, low=1.0, high=2.0))


@autotest(n=2)
def transpose():
    return torch.transpose(random_tensor(ndim=2, dim0=2, dim1=3), 0, 1)


@autotest(n=2, rtol=1.3e-6, atol=0.0, profiles=())
def chain():
    x = random_tensor(ndim=1, dim0=8, low=1.0, high=2.0)
    for _ in range(6):
        x = torch.mul(x, 1.5)
    return x


@autotest(n=2)
def exp():
    return torch.exp(random_tensor(ndim=1))


@autotest(n=3)
def exp_in_place():
    x = random_tensor(ndim=1, requires_grad=False) * 2
    return x.exp_() + 1


@autotest(n=2)
def eigh():
    x = random_tensor(ndim=2, dim0=3, dim1=3)
    return torch.linalg.eigh(x + x.T)


@autotest(n=2)
def sort():
    return torch.sort(random_tensor(ndim=1, dim0=5))


@autotest(n=2, profiles=())
def bitwise_and():
    return random_tensor(1, dim0=3, dtype=int, low=0, high=9) & random_tensor(1, dim0=3, dtype=int, low=0, high=9)


@autotest(n=2, profiles=())
def scale():
    return scale_(random_tensor(1, requires_grad=False) * 2, 3.0)


@autotest(n=2, profiles=())
def tanh():
    return torch.tanh(random_tensor(1))


@autotest(n=2, profiles=())
def linear():
    return torch.nn.Linear(12, 12)(random_tensor(2, dim1=12))


@autotest(n=2, profiles=())
def gelu():
    return torch.nn.functional.gelu(random_tensor(1))


@autotest(n=3, profiles=())
def amax():
    return torch.amax(random_tensor(1, dim0=13))


@autotest(n=8, profiles=())
def sigmoid():
    return torch.sigmoid(random_tensor(1, dim0=random(1, 3)))
"""


CANDIDATES = [
    ("kernels", (
        "torch.rsqrt torch.transpose torch.mul torch.exp torch.sort torch.linalg.eigh torch.bitwise_and "
        "torch.nn.functional.linear operators.scale_"
     ), {}),
    ("forward", "torch.nn.functional.gelu torch.amax torch.sigmoid", {"forward_only": True}),
    ("environ", "torch.tanh", {"env": {"FAST_TANH": "1"}}),
]  # fmt: skip


def row(name, operators, **keys):
    replace = {operator: f"mykernels.{operator.rpartition('.')[2]}" for operator in operators.split()}
    return {"name": name, "backend": "substitute", "replace": replace, **keys}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    held = Project(tmp_path_factory.mktemp("kinds"))
    held.write("mykernels.py", KERNELS)
    held.write("operators.py", OPERATORS)
    held.tests(TESTS)
    held.configure(
        candidates=[row(name, operators, **keys) for name, operators, keys in CANDIDATES], case_timeout="60s"
    )
    done = held.run()
    assert done.status == 1, done.said
    return held


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("rsqrt", "nondeterminism"), ("transpose", "aliasing"), ("mul", "value"), ("exp", "value"), ("sort", "value"),
        ("bitwise_and", "value"), ("scale_", "value"), ("linear", "value"), ("tanh", "value"), ("gelu", "metadata"),
        ("amax", "mutation"), ("sigmoid", "stateful"),
    ],
)  # fmt: skip
def test_run__planted_fault__is_confirmed_with_its_kind_and_its_repro_says_so(project, operator, kind):
    finding = finding_of(project.report(), operator, kind)
    assert (finding["blame"], finding["confirmed"]) == ("candidate", True)
    assert finding["repro_verified"]
    assert finding["versions"].startswith("Python ")


def test_run__each_finding__has_a_title_and_a_program_or_why_there_is_none(project):
    findings = report_json.read(project.folder / "autotest-report/report.json").findings
    assert {finding.id: missing_words(finding) for finding in findings if missing_words(finding)} == {}
    assert {finding.operator: finding.no_program for finding in findings if finding.no_program} == {}


def test_run__other_signs_of_eigenvectors__are_aligned(project):
    assert [item for item in project.report()["findings"] if item["operator"] == "torch.linalg.eigh"] == []


def test_run__no_step_misaligned_alone__tells_how_the_error_grows(project):
    finding = finding_of(project.report(), "mul")
    assert finding["accumulated"]
    assert len(finding["growth"]) >= 2
    page = (project.folder / "autotest-report/findings" / finding["id"] / "README.md").read_text("utf-8")
    assert "How the error grows:" in page


def test_run__one_identity_in_two_tests__lists_both_and_their_programs(project):
    finding = finding_of(project.report(), "exp")
    assert [hit["test"].rpartition("::")[2] for hit in finding["hits"]] == ["exp", "exp_in_place"]
    assert all(hit["count"] == len(hit["cases"]) <= hit["of_cases"] for hit in finding["hits"])
    (variant,) = finding["variants"]
    assert variant["test"].endswith("::exp_in_place")
    assert "exp_()" in variant["program"]


def test_run__page_of_a_finding__is_an_issue_that_can_be_filed(project):
    finding = finding_of(project.report(), "exp")
    page = (project.folder / "autotest-report/findings" / finding["id"] / "README.md").read_text("utf-8")
    for part in ("## Describe the bug", "## To reproduce", "## Versions", "confirmed in a fresh process", "repro.py"):
        assert part in page


def shown_programs(project: Project) -> set[str]:
    output, findings = project.folder / "autotest-report", project.report()["findings"]
    shown = {each["program"] for item in findings for each in (item, *item["variants"])}
    pages = [output / name for name in ("summary.md", "comment.md")]
    pages += [output / "findings" / item["id"] / "README.md" for item in findings]
    for page in pages:
        found = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        assert found, page
        shown.update(found)
    return shown


@pytest.mark.parametrize("kernels", [KERNELS, RIGHT], ids=["faulty", "mended"])
def test_run__every_program_that_is_shown__fails_while_its_kernel_is_faulty(project, kernels, monkeypatch):
    shown = shown_programs(project)
    monkeypatch.chdir(project.folder)
    monkeypatch.syspath_prepend(str(project.folder))
    monkeypatch.setenv("FAST_TANH", "0")  # the program of a row with `env` sets it
    module = ModuleType("mykernels")
    exec(kernels, vars(module))  # noqa: S102 - the project's own
    monkeypatch.setitem(sys.modules, "mykernels", module)
    for text in shown:
        vars(module).get("answers", {}).clear()
        with pytest.raises(AssertionError) if kernels is KERNELS else nullcontext():
            exec(compile(text, "shown", "exec"), {"__name__": "shown"})  # noqa: S102 - what is under test


def test_repro__once_fixed__is_0(project):
    report = project.report()
    findings = [finding_of(report, name) for name in ("rsqrt", "exp", "mul", "transpose")]
    project.write("mykernels.py", RIGHT)
    try:
        done = together(*(lambda finding=finding: project.repro(finding) for finding in findings))
    finally:
        project.write("mykernels.py", KERNELS)
    assert [item.status for item in done] == [0] * 4, "\n".join(item.said for item in done)


def test_replay__differs_from_itself__is_run_again_until_it_does(project):
    finding = finding_of(project.report(), "rsqrt")
    done = project.command("replay", f"autotest-report/findings/{finding['id']}")
    assert done.status == 1, done.said
    assert done.out.startswith("misaligned: torch.rsqrt on kernels: ")
    assert "\n  second run: float" in done.out


UNSTEADY = """
import torch

CALLS = []


def relu(x):
    return torch.Tensor.relu(x) * (1.01 if x.shape[-1] > 3 else 1)


def add(x, other, alpha=1):
    CALLS.append(1)
    return torch.Tensor.add(x, other) + len(CALLS) % 2
"""
TWO_FAULTS = """
@autotest(n=12, profiles=[], auto_backward=False)
def chain():
    return torch.add(torch.relu(random_tensor(ndim=2, requires_grad=False)), 1)


@autotest(n=12, profiles=[], auto_backward=False)
def relu_alone():
    return torch.relu(random_tensor(ndim=2, requires_grad=False))
"""


def test_run__another_operator_of_a_case_differs_from_itself__hides_no_fault(tmp_path):
    held = Project(tmp_path)
    held.write("mykernels.py", UNSTEADY)
    held.tests(TWO_FAULTS)
    held.substitute({"torch.relu": "mykernels.relu", "torch.add": "mykernels.add"})
    done = held.run()
    report = held.report()
    told = {item["operator"]: item for item in report["findings"]}
    assert {name: (item["kind"], item["repro_verified"]) for name, item in told.items()} == {
        "torch.add": ("nondeterminism", True), "torch.nn.functional.relu": ("value", True),
    }, done.said  # fmt: skip
    assert [test.rpartition("::")[2] for test in told["torch.add"]["tests"]] == ["chain"]
    assert done.out.count("misaligned: torch.add on kernels: ") == 2  # while it goes on, and above its facts
    # What is told is what lies in its folder.
    page = (tmp_path / "autotest-report" / "findings" / told["torch.add"]["id"] / "README.md").read_text("utf-8")
    assert f"case {told['torch.add']['case']}, seed" in page
    assert told["torch.add"]["program"] in page


ABORTS = """
import os

import torch


class Sin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sin(x)

    @staticmethod
    def backward(ctx, gradient):
        os.abort()


def sin(x):
    return Sin.apply(x)


def exp(x):
    return torch.Tensor.exp(x)
"""
GOES_ON = """
@autotest(n=2, profiles=[])
def goes_on():
    x = random_tensor(ndim=2)
    y = torch.sin(x)
    return torch.exp(y) * 2, torch.exp(x).mean()
"""


def test_run__worker_ends_in_the_backward_pass__names_the_operator_whose_it_is(tmp_path):
    held = Project(tmp_path)
    held.write("mykernels.py", ABORTS)
    held.tests(GOES_ON)
    held.substitute({"torch.sin": "mykernels.sin", "torch.exp": "mykernels.exp"})
    done = held.run()
    (finding,) = held.report()["findings"]
    assert (finding["operator"], finding["kind"], finding["shrunk"], finding["repro_verified"]) == (
        "torch.sin", "crash", True, True,
    ), done.said  # fmt: skip
    lines = finding["program"].splitlines()
    assert "    sin = function(x)" in lines
    assert any(line.startswith("    sin.backward(torch.tensor(") for line in lines)
    assert lines[-1].startswith("assert returned.is_set(), ")
    assert lines[-1].endswith("  # its backward pass crashed")
    assert finding["dims_max"] == 1


ENDS_ON_NONSENSE = """
import os

import torch


def softmax(x, dim=None, **how):
    if not -x.dim() <= dim < x.dim():
        os.abort()  # as a device does that is not there
    return torch.softmax(x, dim)
"""
REFUSED = """
@autotest(n=6, profiles=[])
def refused():
    return torch.softmax(random_tensor(ndim=2), random(0, 4).to(int))
"""


def test_run__worker_ends_on_what_the_reference_rejects_alone__is_a_note_and_every_case_is_compared(tmp_path):
    held = Project(tmp_path)
    held.write("mykernels.py", ENDS_ON_NONSENSE)
    held.tests(REFUSED)
    held.substitute({"torch.softmax": "mykernels.softmax"})
    done = held.run()
    report = held.report()
    (result,) = report["results"]
    assert (done.status, report["findings"], result["cases"]["aligned"]) == (0, [], 6), done.said
    assert any("ran an input that the reference rejects" in note for note in report["notes"])


BESIDE_THE_TESTS = """
@autotest(n=2, profiles=[])
def exp():
    return torch.exp(random_tensor(ndim=1))
"""


def test_run__kernels_lie_beside_the_tests__the_program_in_the_comment_finds_them_from_the_checkout(tmp_path):
    held = Project(tmp_path)
    held.write("autotests/mykernels.py", "import torch\n\n\ndef exp(x):\n    return torch.exp(x) * 1.01\n")
    held.tests(BESIDE_THE_TESTS)
    held.substitute({"torch.exp": "mykernels.exp"})
    held.run()
    (finding,) = held.report()["findings"]
    rendered = held.command("render", "autotest-report", "summary")  # made anew, as the publisher does
    for shown in (finding["program"], *re.findall(r"^```python\n(.*?)^```", rendered.out, re.MULTILINE | re.DOTALL)):
        pasted = held.write("pasted.py", shown)
        done = subprocess.run([sys.executable, "-c", "exec(open('pasted.py').read())"], cwd=held.folder,
                              capture_output=True, text=True, check=False, env=environment(None))  # fmt: skip
        assert "sys.path += ['autotests']" in pasted.read_text("utf-8")
        assert "AssertionError: Tensor-likes are not close!" in done.stderr, done.stderr
