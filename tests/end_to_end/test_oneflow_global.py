"""OneFlow's global tensors on two ranks: wrong results are found, right ones stay quiet. One group runs all rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch as plain_torch

from ci_autotest import random_tensor, torch
from ci_autotest.backends.registry import build
from ci_autotest.kinds import ModuleCandidate
from ci_autotest.program.distribution import PARTIAL, REPLICATE, Distribution, shard
from ci_autotest.program.ir import PLACEHOLDER, Program, TensorSpec
from tests.candidates import needs, path_of
from tests.engine import judged, record
from tests.projects import Project

PYTHON = path_of("oneflow")
pytestmark = needs("oneflow")
functional = torch.nn.functional
RANKS = 2


@pytest.fixture(scope="module")
def group():
    row = ModuleCandidate(name="global", module="oneflow", python=str(PYTHON), ranks=RANKS)
    backend = build(row, "cpu")
    yield backend
    backend.close()


def of(*dims, **how):
    return random_tensor(dims=dims, **how)


def lying(attempt, placement):
    """Return an attempt with every input of its body lying alike."""

    def laid(step):
        if step.op != PLACEHOLDER or step.in_setup or not isinstance(step.args[0], TensorSpec):
            return step
        return step._replace(args=(replace(step.args[0], distribution=Distribution((RANKS,), (placement,))),))

    program = attempt.program
    steps = tuple(map(laid, program.steps))
    count = len(program.setup)
    return attempt._replace(program=Program(steps[:count], steps[count:], program.cotangents))


def verdict_of(body, placement, backend):
    return judged(lying(record(body), placement), backend).verdict


PLACEMENTS = (REPLICATE, PARTIAL, shard(0), shard(1))
NAMES = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "log1p", "neg",
    "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
)  # fmt: skip
ALIGNED = {
    **{name: lambda name=name: getattr(torch, name)(of(4, 6, low=0.1, high=0.9)) for name in NAMES},
    "add": lambda: of(4, 6) + of(4, 6),
    "sub": lambda: of(4, 6) - of(4, 6),
    "mul": lambda: of(4, 6) * of(4, 6),
    "div": lambda: of(4, 6) / of(4, 6, low=1.0, high=2.0),
    "pow": lambda: torch.pow(of(4, 6, low=0.5, high=2.0), 2.0),
    "maximum": lambda: torch.maximum(of(4, 6), of(4, 6)),
    "sum": lambda: torch.sum(of(4, 6)),
    "sum of rows": lambda: torch.sum(of(4, 6), dim=1),
    "mean": lambda: torch.mean(of(4, 6), dim=0),
    "max": lambda: torch.max(of(4, 6)),
    "amax": lambda: torch.amax(of(4, 6), dim=1),
    "argmax": lambda: torch.argmax(of(4, 6), dim=1),
    "prod": lambda: torch.prod(of(4, 6), dim=0),
    "cumsum": lambda: torch.cumsum(of(4, 6), 0),
    "softmax": lambda: torch.softmax(of(4, 6), 1),
    "log_softmax": lambda: functional.log_softmax(of(4, 6), dim=0),
    "gelu": lambda: functional.gelu(of(4, 6)),
    "silu": lambda: functional.silu(of(4, 6)),
    "clamp": lambda: torch.clamp(of(4, 6), -0.5, 0.5),
    "where": lambda: torch.where(of(4, 6) > 0, of(4, 6), of(4, 6)),
    "cat": lambda: torch.cat([of(4, 6), of(4, 6)], dim=0),
    "stack": lambda: torch.stack([of(4, 6), of(4, 6)], dim=1),
    "transpose": lambda: torch.transpose(of(4, 6), 0, 1),
    "reshape": lambda: of(4, 6).reshape(6, 4),
    "flip": lambda: torch.flip(of(4, 6), [0]),
    "slice": lambda: of(4, 6)[1:3, ::2],
    "tril": lambda: torch.tril(of(4, 6)),
    "sort": lambda: torch.sort(of(4, 6), dim=1)[0],
    "matmul": lambda: torch.matmul(of(4, 6), of(6, 4)),
    "linear": lambda: torch.nn.Linear(6, 2)(of(4, 6)),
    "layer_norm": lambda: torch.nn.LayerNorm(6)(of(4, 6)),
    "ones": lambda: of(4, 6) * torch.ones(6),
    "int64": lambda: of(4, 6, dtype=torch.int64) * 3,
}


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_global__operators_that_are_right__are_aligned(group, placement):
    found = {name: verdict_of(body, placement, group) for name, body in ALIGNED.items()}

    wrong = {
        name: (one.outcome, one.kind, one.oracle, one.misalignment)
        for name, one in found.items()
        if one.outcome not in {"aligned", "unsupported"}
    }
    assert not wrong
    # Nothing stays quiet because nothing was compared.
    assert sum(one.outcome == "aligned" for one in found.values()) >= 0.9 * len(found)


def test_global__norm_of_split_rows__is_the_sum_of_the_norms_and_is_found(group):
    def norm():
        return torch.linalg.norm(plain_torch.tensor([[3.0], [4.0]]))

    found = verdict_of(norm, shard(0), group)

    assert (found.outcome, found.operator, found.kind, found.blame) == (
        "misaligned", "torch.linalg.norm", "value", "candidate",
    )  # fmt: skip
    assert [*map(float.fromhex, found.misalignment.difference.first_pair)] == [7.0, 5.0]


def test_global__operator_that_takes_local_tensors_only__is_unsupported_with_its_words(group):
    found = verdict_of(lambda: torch.repeat_interleave(of(4, 6), 2, 0), REPLICATE, group)

    assert (found.outcome, found.oracle) == (
        "unsupported", "oneflow 0.9.0: repeat_interleave only support local tensor",
    )  # fmt: skip


def test_global__module_of_half_precision__becomes_global_and_lacks_only_a_kernel(group):
    def layer():
        half = plain_torch.float16
        return torch.nn.Linear(6, 2, dtype=half)(of(4, 6, dtype=half))

    found = verdict_of(layer, REPLICATE, group)

    # OneFlow's collectives on the CPU end the process where they meet such a parameter.
    assert found.outcome == "unsupported"
    assert found.oracle.startswith("oneflow 0.9.0: Cannot find the kernel")


def without_gradient(placed):
    """Return a value, and one whose gradient has no kernel in OneFlow 0.9; half precision lies on every rank."""
    return placed, torch.sinh(of(4, 6, dtype=plain_torch.bfloat16))


def test_global__backward_pass_alone_lacks_a_kernel__forward_values_are_compared(group):
    def wrong():
        return without_gradient(torch.linalg.norm(plain_torch.tensor([[3.0], [4.0]])))

    def right():
        return without_gradient(torch.abs(plain_torch.tensor([[3.0], [4.0]])))

    found = {
        name: judged(half_everywhere(record(body)), group).verdict
        for name, body in (("wrong", wrong), ("right", right))
    }

    assert (found["wrong"].outcome, found["wrong"].operator) == ("misaligned", "torch.linalg.norm")
    assert found["right"].outcome == "unsupported"
    assert found["right"].oracle.startswith("in the backward pass, oneflow 0.9.0: Cannot find the kernel")


def half_everywhere(attempt):
    """Return an attempt whose inputs are split, those of half precision excepted, which OneFlow does not send."""
    split, program = lying(attempt, shard(0)).program, lying(attempt, REPLICATE).program
    steps = tuple(
        one if one.op == PLACEHOLDER and one.args[0].dtype == "bfloat16" else other
        for one, other in zip(program.steps, split.steps, strict=True)
    )
    return attempt._replace(program=Program((), steps, program.cotangents))


GLOBAL_FILE = """import oneflow as flow
from oneflow.test_utils.automated_test_util import *


@autotest(auto_backward=False)
def norm(test_case, sbp):
    x = random_tensor(2, 2, 1, requires_grad=False).to_global(placement=random_placement(), sbp=sbp)
    return torch.linalg.norm(x)


class TestNorm(flow.unittest.TestCase):
    @globaltest
    def test_split(test_case):
        norm(test_case, flow.sbp.split(0))

    @globaltest
    def test_others(test_case):
        for sbp in all_sbp(max_dim=2, valid_split_axis=1, except_partial_sum=True):
            norm(test_case, sbp)
"""


def test_run__globaltest__narrows_how_inputs_lie(tmp_path):
    project = Project(tmp_path)
    project.write("tests/test_norm.py", GLOBAL_FILE)
    row = {"name": "global", "backend": "module", "module": "oneflow", "python": str(PYTHON), "ranks": RANKS}
    project.configure(compat="oneflow", paths=["tests"], cases=4, candidates=[row])

    done = project.run()

    outcomes = {item["test"].rpartition("::")[2]: item["outcome"] for item in project.report()["results"]}
    assert outcomes == {"test_split": "misaligned", "test_others": "aligned"}, done.said


def test_run__finding_on_three_ranks__is_shrunk_to_two_and_its_repro_starts_two(tmp_path):
    project = Project(tmp_path)
    project.tests("""
@autotest(n=4, profiles=())
def norm():
    return torch.linalg.norm(random_tensor(2, dim0=6, dim1=8, requires_grad=False))
""")
    row = {"name": "global", "backend": "module", "module": "oneflow", "python": str(PYTHON), "ranks": 3}
    project.configure(candidates=[row])
    assert project.run().status == 1
    (finding,) = project.report()["findings"]

    assert (finding["confirmed"], finding["repro_verified"]) == (True, True)
    assert "# on 2 ranks; the code below is the reference's" in finding["program"]
    assert finding["dims_max"] == 2
