"""`backend: module`: a framework in an interpreter of its own, from the configuration to the repro.

The interpreter is this one, and the frameworks are modules that look like torch and are wrong in one place: what is
compared, lost and found again is what goes over the wire.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import tests.quality.bodies
from tests.projects import Project, outcomes, processes, wait_until

pytestmark = pytest.mark.heavy

#: Everything of torch, and faults of its own.
FRAMEWORK = """
import torch

globals().update({name: value for name, value in vars(torch).items() if not name.startswith("__")})

import os
import time
import types

__version__ = "0.1-lookalike"
print("a banner on standard output")


def exp(input):
    return torch.exp(input) * 1.01


def log1p(input):
    os.abort()


def log(input):
    os._exit(0)


def sqrt(input):
    time.sleep(600)


def acos(input):
    held = []
    while True:
        held.append(bytearray(b"x" * (1 << 24)))


def sin(input):
    return torch.sin(input).detach()


def square(input):
    result = torch.square(input)
    if result.numel() > 40_000:
        result = result.clone()
        result.detach().view(-1)[-1] += 1
    return result


def tan(input):
    raise RuntimeError("no tangent today")


class _Greedy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sinh(x)

    @staticmethod
    def backward(ctx, gradient):
        result = gradient * torch.cosh(ctx.saved_tensors[0])
        gradient.mul_(0)
        return result


def sinh(input):
    return _Greedy.apply(input)


def mm(input, mat2):
    return torch.mm(input[:, :2], mat2)


class _Functional(types.SimpleNamespace):
    def __getattr__(self, name):
        return getattr(torch.nn.functional, name)


nn = types.SimpleNamespace(**{**vars(torch.nn), "functional": _Functional()})
del cos
"""
BODIES = """
@autotest(n=4)
def chain():
    x = random_tensor(2)
    y = (x * 2).transpose(0, 1)
    return torch.softmax(y, 0), y.sum(1)

@autotest(n=4)
def layer():
    return torch.nn.Conv2d(2, 3, 3, padding=1)(random_tensor(4, 2, 2, 5, 6)).relu()

@autotest(n=4)
def statistics():
    return torch.nn.BatchNorm2d(2)(random_tensor(4, 2, 2, 5, 6))

@autotest(n=4)
def written():
    x = random_tensor(2, requires_grad=False)
    x.mul_(3)
    x[0] = 1
    return x

@autotest(n=2, profiles=[])
def large():
    return torch.abs(random_tensor(2, 300, 200))

@autotest(n=2, profiles=[])
def large_and_wrong():
    return torch.square(random_tensor(2, 300, 200))

@autotest(n=3)
def wrong():
    return torch.exp(random_tensor())

@autotest(n=2)
def aborts():
    return torch.log1p(random_tensor())

@autotest(n=2)
def exits():
    return torch.log(random_tensor())

@autotest(n=2)
def detached():
    return torch.sin(random_tensor())

@autotest(n=2)
def raises():
    return torch.tan(random_tensor())

@autotest(n=2)
def absent():
    return torch.cos(random_tensor())

@autotest(n=3)
def in_place_module():
    return torch.nn.ReLU(inplace=True)(random_tensor(2) * 2) * 3

@autotest(n=3)
def in_place_by_position():
    return torch.nn.functional.relu(random_tensor(2) * 2, True) * 3

@autotest(n=3)
def array():
    x = random_tensor(2, requires_grad=False)
    return torch.from_numpy((x * 2).numpy().copy()) + x

@autotest(n=2, profiles=[])
def greedy():
    return torch.sinh(random_tensor(1, 3))

@autotest(n=2)
def watched():
    x, seen = random_tensor(), []
    handle = x.register_hook(lambda gradient: print(gradient))
    (x * 2).register_hook(lambda gradient: seen.append(gradient * 2))
    y = x * 3
    handle.remove()
    return y

@autotest(n=2)
def watched_and_wrong():
    x = random_tensor()
    x.register_hook(print)
    return torch.exp(x)

@autotest(n=2)
def hooked():
    x = random_tensor()
    x.register_hook(lambda gradient: gradient * 2)
    return x * 3

@autotest(n=2, raises=RuntimeError)
def accepts():
    return torch.mm(random_tensor(2, 2, 3), random_tensor(2, 2, 3))
"""
EXPECTED = {
    "chain": "aligned", "layer": "aligned", "statistics": "aligned", "written": "aligned", "large": "aligned",
    "large_and_wrong": "misaligned", "wrong": "misaligned", "aborts": "crashed", "exits": "crashed",
    "in_place_module": "aligned", "in_place_by_position": "aligned", "array": "aligned", "greedy": "misaligned",
    "detached": "misaligned", "raises": "misaligned", "absent": "unsupported", "hooked": "unsupported",
    "watched": "aligned", "watched_and_wrong": "misaligned", "accepts": "misaligned",
}  # fmt: skip


def project_in(folder: Path, bodies: str = BODIES) -> Project:
    project = Project(folder)  # a dozen findings, each with interpreters of its own to start
    project.configure(
        candidates=[{"name": "lookalike", "backend": "module", "module": "lookalike", "python": sys.executable}],
        case_timeout="20s",
    )
    project.write("lookalike.py", FRAMEWORK)
    project.tests(bodies)
    return project


def test_run__lookalike__every_test_has_the_right_outcome_and_repros_run_alone(tmp_path: Path):
    project = project_in(tmp_path)

    done = project.run()

    report = project.report()
    assert outcomes(report) == {(name, "lookalike"): outcome for name, outcome in EXPECTED.items()}, done.said
    (candidate,) = report["candidates"]
    assert (candidate["version"], set(candidate["libraries"])) == ("0.1-lookalike", {"numpy", "python"})
    found = {each["operator"].rpartition(".")[2]: each for each in report["findings"]}
    assert {name: (each["kind"], each["outcome"]) for name, each in found.items()} == {
        "square": ("value", "misaligned"), "exp": ("value", "misaligned"), "log1p": ("crash", "crashed"),
        "log": ("crash", "crashed"), "sin": ("metadata", "misaligned"), "tan": ("error", "misaligned"), "sinh": ("mutation", "misaligned"),
        "mm": ("leniency", "misaligned"),
    }, done.said  # fmt: skip
    assert "ended by signal 6 (SIGABRT)" in found["log1p"]["message"]
    assert "in torch.log1p" in found["log1p"]["message"], "the host tells the step that it was in"
    assert {name for name, each in found.items() if each["repro_verified"]} == set(found), done.said
    reasons = {each["test"].rpartition("::")[2]: each["reason"] for each in report["results"]}
    assert "has no lookalike.cos" in reasons["absent"]
    assert "hooks cannot run in another interpreter" in reasons["hooked"]
    repro = project.repro(found["exp"], "autotest-report", tmp_path)
    assert (repro.status, "misaligned: value of exp" in repro.out) == (1, True), repro.said
    mended = FRAMEWORK.replace("* 1.01", "* 1.0").replace("input[:, :2]", "input")
    (tmp_path / "lookalike.py").write_text(mended, encoding="utf-8")
    assert [project.repro(found[name], "autotest-report", tmp_path).status for name in ("exp", "mm")] == [0, 0]
    assert project.command("replay", f"autotest-report/findings/{found['exp']['id']}").status == 0


#: What another interpreter is not asked, by the test of the body that asks for it.
NOT_ASKED = {"hook_on_a_gradient": "hooks", "regularized_by_dropout": "draws random numbers"}


def test_run__the_reference_itself_in_a_host__every_body_is_aligned(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(
        candidates=[{"name": "hosted", "backend": "module", "module": "torch", "python": sys.executable}], cases=6
    )
    bodies = Path(tests.quality.bodies.__file__).read_text(encoding="utf-8")
    decorated = (
        "from ci_autotest import autotest\nglobals().update({name: autotest()(body) for name, body in BODIES.items()})"
    )
    project.write("autotest_bodies.py", f"{bodies}\n{decorated}\n")

    done = project.run()

    report = project.report()
    reasons = {each["test"].rpartition("::")[2]: each["reason"] for each in report["results"] if each["reason"]}
    assert {name for (name, _), outcome in outcomes(report).items() if outcome != "aligned"} == set(NOT_ASKED), (
        done.said
    )
    assert all(NOT_ASKED[name] in reason for name, reason in reasons.items()), reasons


#: A gradient that is wrong only behind another call: no step is misaligned alone, so each of them is looked at.
BEHIND = """
import torch

globals().update({name: value for name, value in vars(torch).items() if not name.startswith("__")})


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def exp(input):
    return torch.exp(input if input.is_leaf else _Doubled.apply(input))
"""


@pytest.mark.parametrize("moved", ['.to("cpu")', ".to(random_device())"])
def test_run__leaf_is_moved_to_where_it_is__the_move_has_a_gradient(moved: str, tmp_path: Path):
    project = project_in(tmp_path, "")
    project.write("lookalike.py", BEHIND)
    project.tests(
        "from ci_autotest import random_device\n@autotest(n=2, profiles=[])\n"
        f"def body():\n    return torch.exp(random_tensor(2){moved} * 2)\n"
    )

    done = project.run()

    (finding,) = project.report()["findings"]
    assert (finding["kind"], finding["candidate_seen"]) == ("gradient", "float32[1, 1] on cpu"), done.said
    assert (finding["accumulated"], finding["repro_verified"]) == (True, True), done.said


#: Modules that lack a buffer and a parameter of torch's, one that refuses any state, and one that is wrong.
OTHER_STATE = """
import torch

globals().update({name: value for name, value in vars(torch).items() if not name.startswith("__")})
import types


class BatchNorm1d(torch.nn.BatchNorm1d):
    def __init__(self, *args, **how):
        super().__init__(*args, **how)
        del self.num_batches_tracked, self.bias

    def forward(self, x):
        return torch.nn.functional.batch_norm(x, self.running_mean, self.running_var, self.weight, training=True)


class Linear(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * 1.1


class Bilinear(torch.nn.Bilinear):
    def load_state_dict(self, state, strict=True):
        raise RuntimeError("not today")


nn = types.SimpleNamespace(**{**vars(torch.nn), **{each.__name__: each for each in (BatchNorm1d, Linear, Bilinear)}})
"""
STATES = """
@autotest(n=2, profiles=[])
def lacks():
    return torch.nn.BatchNorm1d(3)(random_tensor(2, 4, 3))

@autotest(n=2, profiles=[])
def lacks_and_is_wrong_behind():
    return torch.nn.Linear(3, 2)(torch.nn.BatchNorm1d(3)(random_tensor(2, 4, 3)))

@autotest(n=2, profiles=[])
def refuses():
    return torch.nn.Bilinear(3, 3, 2)(random_tensor(2, 4, 3), random_tensor(2, 4, 3))

@autotest(n=2, profiles=[])
def expanded():
    weight = random_tensor(1, 1, requires_grad=False).expand(3)
    return torch.nn.BCEWithLogitsLoss(pos_weight=weight)(random_tensor(2, 4, 3), torch.ones(4, 3))
"""


def test_run__module_does_not_take_the_references_state__is_said_and_hides_nothing(tmp_path: Path):
    project = project_in(tmp_path, STATES)
    project.write("lookalike.py", OTHER_STATE)

    done = project.run()

    report = project.report()
    assert outcomes(report) == {
        ("lacks", "lookalike"): "aligned", ("lacks_and_is_wrong_behind", "lookalike"): "misaligned",
        ("refuses", "lookalike"): "unsupported", ("expanded", "lookalike"): "aligned",
    }, done.said  # fmt: skip
    (finding,) = report["findings"]
    assert (finding["operator"], finding["repro_verified"]) == ("torch.nn.functional.linear", True), done.said
    said = (
        "lookalike has no BatchNorm1d.bias, BatchNorm1d.num_batches_tracked: left out of its modules, and not compared"
    )
    assert said in report["notes"]
    (reason,) = [each["reason"] for each in report["results"] if each["outcome"] == "unsupported"]
    assert reason.endswith("cannot load the state of the reference's module (RuntimeError: not today)")


HELD = """
@autotest(n=1)
def hangs():
    return torch.sqrt(random_tensor(1, 3))

@autotest(n=1)
def hoards():
    return torch.acos(random_tensor(1, 3))
"""


def test_run__host_hangs_or_hoards__is_ended_and_costs_that_case(tmp_path: Path):
    """What hoards has three minutes: a slow machine must not take it for what hangs."""
    project = project_in(tmp_path, HELD)
    candidate = {"name": "lookalike", "backend": "module", "module": "lookalike"}
    seen = {}
    for name, timeout in (("hangs", "5s"), ("hoards", "180s")):
        project.configure(candidates=[candidate], case_timeout=timeout, memory="2GiB")
        done = project.run(f"autotests/autotest_all.py::{name}")
        seen[name] = outcomes(project.report())[name, "lookalike"]

    assert seen == {"hangs": "timed_out", "hoards": "crashed"}, done.said
    assert "more than its limit of 2.0 GiB" in done.said
    assert wait_until(lambda: processes(str(tmp_path)) == [], 60), (
        f"a host outlived its run: {processes(str(tmp_path))}"
    )


#: What frameworks say of themselves, as a module of the user's says it: by operator.
HOSTILE = {
    "exp": ("RuntimeError", "\"exp_cpu\" not implemented for 'Float'"),
    "sin": ("TypeError", "sin() received an invalid combination of arguments - got (Tensor)"),
    "cos": ("TypeError", "cos() got an unexpected keyword argument 'out'"),
    "tanh": ("RuntimeError", "Cannot find the kernel matching Current OperatorConf."),
    "sinh": ("RuntimeError", "derivative for sinh is not implemented"),
    "cosh": ("ValueError", "cosh is not supported, unsupported, not yet implemented"),
}


def test_run__module_of_the_users_says_what_frameworks_say__is_its_error(tmp_path: Path):
    project = Project(tmp_path)
    row = {"name": "hostile", "backend": "module", "module": "hostile", "python": sys.executable}
    project.configure(candidates=[row])
    lines = [f"def {name}(input):\n    raise {kind}({words!r})\n" for name, (kind, words) in HOSTILE.items()]
    names = 'globals().update({name: value for name, value in vars(torch).items() if not name.startswith("__")})\n'
    project.write("hostile.py", "\n\n".join(["import torch\n", names, *lines]))
    bodies = [
        f"@autotest(n=1, profiles=[])\ndef {name}():\n    return torch.{name}(random_tensor(2))\n" for name in HOSTILE
    ]
    project.tests("\n\n".join(bodies))

    done = project.run()

    found = {each["operator"]: (each["kind"], each["candidate_seen"]) for each in project.report()["findings"]}
    assert found == {f"torch.{name}": ("error", f"raises {kind}") for name, (kind, _) in HOSTILE.items()}, done.said
