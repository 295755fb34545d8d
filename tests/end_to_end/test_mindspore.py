"""MindSpore 2.10.0 in its own interpreter: `mindspore.mint`, eagerly, on the CPU.

It is made by `make candidates ONLY=mindspore`; half of `mint` has kernels for Ascend alone.
"""

from __future__ import annotations

import pytest
import torch as plain_torch

from ci_autotest import random_tensor, torch
from ci_autotest.backends.registry import build
from ci_autotest.kinds import ModuleCandidate
from tests.candidates import needs, path_of
from tests.engine import judged, record
from tests.projects import Project, outcomes

PYTHON = path_of("mindspore")
pytestmark = needs("mindspore")
functional = torch.nn.functional


def candidate(**more):
    return build(ModuleCandidate(name="it", module="mindspore", python=str(PYTHON), **more), "cpu")


@pytest.fixture(scope="module")
def mindspore():
    backend = candidate()
    yield backend
    backend.close()


def of(*dims, **how):
    return random_tensor(dims=dims, **how)


def without_gradients():
    x, y = of(3), of(3)
    with torch.no_grad():
        z = torch.exp(x)
    return z * y


def both(x):
    return x.exp(), x.sin()


def compared(x):
    return x.exp(), x > 0


ALIGNED = {
    "exp": lambda: torch.exp(of(3, 4)),
    "a chain": lambda: (torch.sin(of(3, 4)).relu() * 2).sum(1),
    "matmul": lambda: of(2, 3, 4) @ of(2, 4, 5),
    "linear": lambda: functional.linear(of(2, 3), of(4, 3), of(4)),
    "a module": lambda: torch.nn.Linear(3, 4)(of(2, 3)),
    "softmax": lambda: functional.softmax(of(3, 5), dim=1),
    "group_norm": lambda: functional.group_norm(of(2, 4, 3), 2, of(4), of(4)),
    "a tuple": lambda: torch.max(of(3, 6), dim=1),
    "two outputs of one leaf": lambda: both(of(3)),
    "an output without gradient": lambda: compared(of(3)),
    "a slice": lambda: of(3, 4)[1:, ::2],
    "concatenation": lambda: torch.cat([of(3), of(2)]),
    "bfloat16": lambda: of(3, dtype=plain_torch.bfloat16) * 2,
    "64 bits": lambda: torch.tanh(of(3, dtype=plain_torch.float64)),
    "a permuted input": lambda: of(3, 4).t() + 1,
    "detach": lambda: of(3).detach() * of(3),
    "no_grad": without_gradients,
    "gather": lambda: torch.gather(of(3, 4), 1, of(3, 2, dtype=plain_torch.int64, low=0, high=4)),
}


@pytest.mark.parametrize("body", ALIGNED.values(), ids=ALIGNED)
def test_mindspore__operators_of_many_families_are_aligned_forward_and_backward(mindspore, body):
    found = judged(record(body, profile="ordinary"), mindspore).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


def test_mindspore__leaves_have_gradients_and_what_no_output_depends_on_has_none(mindspore):
    attempt = record(without_gradients, profile="ordinary")
    trace = mindspore.run(attempt.program, attempt.sources)
    mindspore.backward(attempt.program, trace, attempt.cotangents)
    assert trace.backward_failure is None
    assert [gradient is None for gradient in trace.gradients.values()] == [True, False]


UNSUPPORTED = {
    "an operator that mint has not": (lambda: torch.special.i1(of(3)), "no row for torch.special.i1"),
    "a kernel": (lambda: torch.cumsum(of(3), 0), "kernel CumsumExt"),
    "a kernel of a dtype": (lambda: torch.ceil(of(3, dtype=plain_torch.int64)), "must be a type of {"),
    "an argument": (lambda: functional.interpolate(of(1, 1, 3), scale_factor=2, mode="nearest-exact"), "'mode'"),
    "a shape that its documentation excludes": (lambda: torch.linalg.cross(of(2, 3), of(1, 3)), "different shapes"),
    "a complex gradient": (lambda: of(3, dtype=plain_torch.complex64) * 2, "gradients of complex tensors"),
    "a write": (lambda: of(3, requires_grad=False).add_(1), "no in-place form of torch.add"),
    "a draw": (lambda: functional.dropout(of(9)), "draws random numbers"),
}


@pytest.mark.parametrize(("body", "named"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_mindspore__what_it_has_not__is_unsupported_and_named(mindspore, body, named):
    found = judged(record(body, profile="ordinary"), mindspore).verdict
    assert found.outcome == "unsupported", found.misalignment
    assert named in found.oracle


def test_mindspore__error__is_its_own_step_s_and_no_later_program_s(mindspore):
    # Launched without waiting, the kernel that is missing would be told by whatever reads next, ever after.
    def chain():
        return torch.exp(torch.cumsum(torch.sin(of(3)), 0))

    attempt = record(chain, profile="ordinary")
    assert "kernel CumsumExt" in str(mindspore.run(attempt.program, attempt.sources).untested)
    found = judged(record(ALIGNED["exp"], profile="ordinary"), mindspore).verdict
    assert found.outcome == "aligned", found.oracle


def test_mindspore__planted_wrong_row__is_misaligned_forward_and_backward():
    backend = candidate(mapping={"torch.sin": {"to": "mindspore.mint.cos"}})
    try:
        found = judged(record(lambda: torch.sin(of(3, 4)), profile="ordinary"), backend).verdict
    finally:
        backend.close()
    assert (found.outcome, found.kind, found.operator, found.blame) == ("misaligned", "value", "torch.sin", "candidate")


BODIES = """
@autotest(n=2)
def exponential():
    return torch.exp(random_tensor(ndim=1))


@autotest(n=2, profiles=())
def half_detached():
    x = random_tensor(ndim=1, low=0.5, high=1)
    return x * x.detach()


@autotest(n=2)
def bessel():
    return torch.special.i1(random_tensor(ndim=1))
"""
#: Right where nothing is negative, but for its gradient.
ROWS = {"torch.detach": {"to": "mindspore.mint.nn.functional.relu", "positional": ["input"], "reason": "planted"}}


def test_run__wrong_gradient__has_a_repro_in_mindspore_s_words(tmp_path):
    project = Project(tmp_path)
    plain = {"name": "plain", "backend": "module", "module": "mindspore", "python": str(PYTHON)}
    project.configure(candidates=[plain, {**plain, "name": "wrong", "mapping": ROWS}])
    project.tests(BODIES)
    done = project.run()
    report = project.report()
    found = outcomes(report)
    assert {test: found[test, "plain"] for test in ("exponential", "half_detached", "bessel")} == {
        "exponential": "aligned", "half_detached": "aligned", "bessel": "unsupported",
    }, done.said  # fmt: skip
    assert (found["half_detached", "wrong"], done.status) == ("misaligned", 1)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["repro_verified"]) == ("gradient", True)
    repro = project.repro(finding)
    said = repro.out.partition("running mindspore 2.10.0")[2]
    assert (repro.status, "misaligned: gradient of x" in said) == (1, True), repro.said
    # An error of the script's own is no finding, though Python would end with the same status.
    script = tmp_path / "autotest-report" / finding["repro"]
    script.write_text(script.read_text("utf-8").replace("\nTAKES = ", "\nnothing\nTAKES = ", 1), encoding="utf-8")
    assert project.repro(finding).status == 2
