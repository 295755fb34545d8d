"""Which candidates are probed, and by which keys of a row: the tables of the documentation, held against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.backends.ranks.backend import DTensorBackend
from ci_autotest.backends.ranks.global_tensors import GlobalTensorBackend
from ci_autotest.backends.ranks.training.module_backend import ModuleBackend
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.backends.substitute.isolated_kernels import IsolatedBackend
from ci_autotest.kinds import KINDS
from ci_autotest.values.kernel_scope import KernelScope
from ci_autotest.values.probes import ProbeCounts
from tests.quality import remembering
from tests.quality.kernel_runs import run_of_kernel

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "stateful.md").read_text()
BACKENDS = {
    "substitute": SubstituteBackend, "substitute with isolated or env": IsolatedBackend, "torch": TorchBackend,
    "module, mode: eager": RemoteBackend, "module with ranks": GlobalTensorBackend, "torch.compile": CompileBackend,
    "fx": FxBackend, "onnxruntime": ExportBackend, "export": ExportBackend, "dtensor": DTensorBackend, "ddp": ModuleBackend, "fsdp": ModuleBackend,
}  # fmt: skip
TEST = """
from ci_autotest import autotest, random_tensor, torch

@autotest(dtypes=("float64", "float32"))
def tanh():
    return torch.tanh(random_tensor())
"""
#: Values of keys with which a kernel takes only some cases, so that the first case of a window may not be among them.
TAKEN = {
    "forward_only": True, "dtypes": ["float32"], "layouts": ["contiguous"], "profiles": ["ordinary"],
    "devices": ["cpu"], "writes": ["input"],
}  # fmt: skip


def table(heading):
    """Return the rows of the table whose first column has a heading."""
    lines = PAGE.partition(f"| {heading} |")[2].splitlines()[2:]
    rows = [[re.sub("`", "", cell).strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]}


def test_kinds__of_the_table__are_all_kinds_of_candidates_that_there_are():
    assert {name.partition(" ")[0].rstrip(",") for name in table("kind of candidate")} == {*KINDS}


@pytest.mark.parametrize("name", BACKENDS)
def test_kind__in_the_table__is_probed_as_it_says(name):
    backend = BACKENDS[name]
    abilities = backend.abilities.fget(backend)  # Making each of them would start interpreters and ranks.
    shown = ("steps" in abilities, "again" in abilities, "body" in abilities)
    assert table("kind of candidate")[name] == ["yes" if each else "no" for each in shown]


def test_keys__of_the_table__are_all_keys_of_a_scope():
    assert {*KernelScope._fields, "isolated", "env", "guard", "opcheck"} == table("key").keys()


@pytest.mark.parametrize("key", TAKEN)
def test_key__kernel_that_replays_answers__is_probed_and_found(key, tmp_path):
    make, operator = remembering.ALL["tanh_value_by_shape"]
    taken = tuple(TAKEN[key]) if isinstance(TAKEN[key], list) else TAKEN[key]
    done = run_of_kernel(TEST, "tanh", {operator: make()}, tmp_path, **{key: taken})
    assert "stateful" in {failure.verdict.kind for failure in done.failures}
    assert done.pairs["kernel"].probes.run


def test_probes__of_an_honest_kernel__are_counted_and_called_its_operator(tmp_path):
    done = run_of_kernel(TEST, "tanh", {"torch.tanh": torch.tanh}, tmp_path)
    assert {name: tally.probes for name, tally in done.pairs.items()} == {"kernel": ProbeCounts(planned=2, run=2)}
    assert done.usage["kernel"].probed == ("torch.tanh",)


LEFT_OUT = {
    "not_repeatable": "x = random_tensor(2)\n    x.register_hook(lambda gradient: gradient)\n    return torch.tanh(x)",
    "too_large": "return torch.tanh(random_tensor(2, 300, 300))",
    "empty": "return torch.tanh(random_tensor(2, 0, 3))",
    "not_aligned": "return torch.tanh(random_tensor(2)) + torch.exp(random_tensor(1, 3))",
}


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_probes__that_are_left_out__are_counted_with_the_reason(reason, tmp_path):
    tests = TEST.replace("return torch.tanh(random_tensor())", LEFT_OUT[reason])
    kernels = {"torch.tanh": torch.tanh, "torch.exp": lambda x: torch.exp(x) + 1}
    done = run_of_kernel(tests, "tanh", kernels, tmp_path)
    assert {name: tally.probes for name, tally in done.pairs.items()} == {
        "kernel": ProbeCounts(planned=2, left_out={reason: 2})
    }
    assert done.usage["kernel"].probed == ()


BROKEN = (
    TEST
    + """
@autotest()
def broken():
    if next(calls) > 300:
        raise KeyError("a bug of the test")
    return torch.tanh(random_tensor())

import itertools
calls = itertools.count()
"""
)


def test_probes__after_a_test_that_broke__are_run_for_the_next_one(tmp_path):
    make, operator = remembering.ALL["tanh_value_by_address"]
    done = run_of_kernel(BROKEN, "tanh", {operator: make()}, tmp_path, before="broken")
    assert (done.pairs["kernel"].probes.planned, done.pairs["kernel"].probes.run) == (2, 2)
    assert "stateful" in {failure.verdict.kind for failure in done.failures}
