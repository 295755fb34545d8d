"""JAX as a candidate, in its own interpreter: what its table answers is aligned, and what it cannot answer is named.

It is not installed by `make install`: CPython 3.11 or newer and `pip install jax==0.10.2` in `.venvs/jax`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch as plain_torch

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import differentiate
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.mapping.table import load_table
from ci_autotest.backends.operators.argument_binding import WITHOUT_MEANING, arguments
from ci_autotest.backends.registry import build
from ci_autotest.kinds import ModuleCandidate
from ci_autotest.program.ir import PLACEHOLDER
from tests.candidates import needs, path_of
from tests.engine import judged, record

ROOT = Path(__file__).parents[2]
PYTHON = path_of("jax")
pytestmark = needs("jax")
functional = torch.nn.functional
linalg = torch.linalg


def candidate(**more):
    return build(ModuleCandidate(name="jax", module="jax", python=str(PYTHON), **more), "cpu")


@pytest.fixture(scope="module")
def jax():
    backend = candidate()
    yield backend
    backend.close()


def of(*dims, **how):
    return random_tensor(dims=dims, **how)


def complex_of(*dims):
    return of(*dims, dtype=plain_torch.complex128)


def positive_of(x):
    return x[x > 0]


def half_detached(x):
    return x * x.detach()


def doubled_or_not(x):
    return x * 2 if float(x.sum()) > -100 else x


def not_holomorphic(z):
    return torch.abs(z) * z.conj() + torch.real(z)


ALIGNED = {
    "add, promoted": lambda: of(2, 3, dtype=plain_torch.int64) + 0.5,
    "sub, of a 0-dim float64": lambda: of(3) - of(dtype=plain_torch.float64),
    "sin of integers": lambda: torch.sin(of(4, dtype=plain_torch.int64)),
    "softmax": lambda: functional.softmax(of(3, 5), dim=-2),
    "gelu": lambda: functional.gelu(of(3, 5)),
    "matmul": lambda: of(2, 3, 4) @ of(4, 5),
    "sum of integers": lambda: torch.sum(of(3, 4, dtype=plain_torch.int32, low=0), dim=0),
    "max, its ties": lambda: torch.max(torch.round(of(3, 6)), dim=1),
    "var": lambda: torch.var(of(3, 6), dim=(0, 1), keepdim=True),
    "conv2d, grouped and dilated": lambda: functional.conv2d(
        of(2, 4, 9, 8), of(6, 2, 3, 2), of(6), stride=(2, 1), padding=(1, 2), dilation=2, groups=2
    ),
    "conv_transpose2d, grouped": lambda: functional.conv_transpose2d(
        of(2, 4, 5, 3), of(4, 3, 3, 2), of(6), stride=2, padding=1, output_padding=(1, 0), groups=2
    ),
    "a module, lowered": lambda: torch.nn.Conv2d(3, 4, (2, 3), padding=1)(of(2, 3, 6, 6)),
    "max_pool2d, ceiled": lambda: functional.max_pool2d(of(2, 3, 7, 8), 3, stride=2, padding=1, ceil_mode=True),
    "avg_pool2d, padding not counted": lambda: functional.avg_pool2d(
        of(2, 3, 7, 8), 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False
    ),
    "layer_norm": lambda: functional.layer_norm(of(2, 3, 6), (3, 6), of(3, 6), of(3, 6)),
    "indexing by integers and slices": lambda: of(3, 5, 6)[:, -2, 1:5:2],
    "indexing by a mask, whose shape follows from data": lambda: positive_of(of(5, 6)) * 2,
    "index_add": lambda: torch.index_add(
        of(4, 3), 0, of(3, dtype=plain_torch.int64, low=0, high=4), of(3, 3), alpha=2.0
    ),
    "fft": lambda: torch.fft.fft(of(3, 8), norm="ortho"),
    "solve": lambda: linalg.solve(of(3, 3) + 4 * torch.eye(3), of(3, 2)),
    "bfloat16": lambda: of(4, 5, dtype=plain_torch.bfloat16) * 2,
    "detached": lambda: half_detached(of(3)),
    "a branch by a value": lambda: doubled_or_not(of(3)),
    "complex product": lambda: complex_of(3, 4) @ complex_of(4, 2),
    "complex, not holomorphic": lambda: not_holomorphic(complex_of(3, 4)),
    "real from complex": lambda: torch.abs(complex_of(5)),
    "complex from real": lambda: torch.exp(torch.complex(of(3, 4), of(3, 4))),
}


@pytest.mark.parametrize("body", ALIGNED.values(), ids=ALIGNED)
def test_jax__a_row_of_its_table__is_aligned_forward_and_backward(jax, body):
    attempt = record(body, profile="ordinary")
    found = judged(attempt, jax).verdict
    assert found.outcome == "aligned", (found.oracle, found.misalignment)


@pytest.mark.parametrize("body", ALIGNED.values(), ids=ALIGNED)
def test_jax__leaves_with_a_gradient_on_the_reference__have_one(jax, body):
    # What is compared is there: no gradient passes for having been left out.
    attempt = record(body, profile="ordinary")
    differentiate(attempt, TorchBackend())
    trace = jax.run(attempt.program, attempt.sources)
    jax.backward(attempt.program, trace, attempt.cotangents)
    steps = attempt.program.steps
    expected, got = (
        {
            key
            for key, value in of_side.items()
            if value is not None and (type(key) is tuple or steps[key].op == PLACEHOLDER)
        }
        for of_side in (attempt.trace.gradients, trace.gradients)
    )
    assert (trace.backward_failure, got) == (None, expected)


UNSUPPORTED = {
    "in place": (lambda: of(3).clone().mul_(2), "no in-place form of torch.mul"),
    "an operator": (lambda: functional.mse_loss(of(3), of(3)), "torch.nn.functional.mse_loss"),
    "an argument": (lambda: torch.add(of(3), of(3), alpha=2), "argument 'alpha' of torch.add"),
    "a value of an argument": (lambda: torch.div(of(3), of(3), rounding_mode="trunc"), "rounding_mode='trunc'"),
    "written to by index": (lambda: written_to(of(3).clone()), "never written to"),
    "a module, state and all": (lambda: torch.nn.GRUCell(3, 4)(of(2, 3)), "torch.gru_cell"),
    "running statistics": (lambda: torch.nn.BatchNorm1d(3)(of(4, 3)), "training=True with running_mean"),
}


def written_to(x):
    x[0] = 1.0
    return x


@pytest.mark.parametrize(("body", "named"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_jax__without_counterpart__is_unsupported_and_named(jax, body, named):
    found = judged(record(body, profile="ordinary"), jax)
    assert found.verdict.outcome == "unsupported"
    assert named in found.verdict.oracle


WRONG_ROWS = {
    "value": (
        {"torch.sin": {"to": "jax.numpy.cos", "positional": ["input"], "reason": "planted"}},
        lambda: torch.sin(of(3, 4)),
        ("value", "torch.sin"),
    ),
    "gradient": (
        {"torch.clone": {"to": "jax.lax.stop_gradient", "rename": {"input": "x"}}},
        lambda: of(3).clone() * of(3),
        ("gradient", "torch.clone"),
    ),
    "complex value": (
        {"torch.abs": {"to": "jax.numpy.real", "positional": ["input"], "reason": "planted"}},
        lambda: torch.abs(complex_of(3, 4)),
        ("value", "torch.abs"),
    ),
    "dtype": (
        {"torch.cos": {"to": "jax.numpy.cos", "positional": ["input"], "reason": "planted: without promotion"}},
        lambda: torch.cos(of(4, dtype=plain_torch.int64)),
        ("dtype", "torch.cos"),
    ),
    "shape": (
        {"torch.tril": {"to": "jax.numpy.ravel", "rename": {"input": "a"}}},
        lambda: torch.tril(of(3, 4)),
        ("shape", "torch.tril"),
    ),
    "error": (
        {"torch.triu": {"to": "jax.numpy.triu"}},
        lambda: torch.triu(of(3, 4)),
        ("error", "torch.triu"),
    ),
}


@pytest.mark.parametrize(("rows", "body", "expected"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_jax__planted_wrong_row__is_misaligned(rows, body, expected):
    backend = candidate(mapping=rows)
    try:
        found = judged(record(body, profile="ordinary"), backend).verdict
    finally:
        backend.close()
    assert (found.outcome, found.kind, found.operator) == ("misaligned", *expected)


#: Names of other spellings of an operator: without those that the row needs, the call is unsupported.
OTHER_NAMES = {
    "torch.linalg.det": {"input"},
    "torch.linalg.slogdet": {"input"},
    "torch.linalg.solve": {"input", "other"},
    "torch.linalg.qr": {"input", "some"},
}
TAKES = """
import inspect, json, sys
from ci_autotest.host.frameworks.jax import Jax
jax, wrong = Jax(), []
for operator, row in json.load(sys.stdin).items():
    for name in row["adapters"]:
        jax.named(f"adapters.{name}")
    parameters = inspect.signature(jax.named(row["to"])).parameters.values()
    takes = {each.name for each in parameters if each.kind not in (each.POSITIONAL_ONLY, each.VAR_KEYWORD)}
    wrong += [f"{operator}: {name}" for name in row["names"] if name not in takes]
print(json.dumps(wrong))
"""


def test_table_of_jax__each_row__names_what_jax_has_and_takes_every_argument_of_torch():
    rows = {}
    for operator, row in load_table("jax").rows.items():
        if row.unsupported:
            continue
        dealt_with = {"out", "requires_grad", "inplace", *row.default, *row.positional, *OTHER_NAMES.get(operator, ())}
        names = [row.rename.get(name, name) for name in arguments(operator) - WITHOUT_MEANING - dealt_with]
        adapters = [*row.adapt.values(), *filter(None, [row.promote, row.result])]
        rows[operator] = {"to": row.to, "adapters": adapters, "names": [*names, *row.fill]}
    told = subprocess.run(
        [PYTHON, "-c", TAKES],
        input=json.dumps(rows),
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(rows) > 250
    assert json.loads(told.stdout) == []
