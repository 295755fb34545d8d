"""A kernel that touches memory beside its inputs is found by a run, with a repro that shows it alone."""

from __future__ import annotations

import pytest

from tests.projects import Project

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

KERNELS = """
import ctypes

import torch


def memory(x, behind):
    return (ctypes.c_float * (x.numel() + behind)).from_address(x.data_ptr())


def sum_with_a_masked_tail(x):
    return torch.tensor(sum(memory(x, 0)) + 0.0 * memory(x, 1)[x.numel()])


def sum_that_keeps_a_total(x):
    data = memory(x, 1)
    data[x.numel()] = sum(memory(x, 0))
    return torch.tensor(float(data[x.numel()]))


def sum_in_a_block_of_four(x):
    found = torch.empty(3)
    data = memory(found, 1)
    for i in range(4):
        data[i] = sum(memory(x, 0)[i::4])
    return found[0] + found[1] + found[2] + data[3]


def right_sum(x):
    return torch.tensor(sum(memory(x, 0), 0.0))
"""
#: The block of 13 elements has room for one more. Behind 14 there is what the allocator needs, and without guard bands a
#: kernel that writes there may end its worker before a case with them comes.
TESTS = """
@autotest(profiles=())
def total():
    return torch.sum(random_tensor(1, dim0=13))
"""


@pytest.fixture
def project(tmp_path):
    found = Project(tmp_path)
    found.write("mine.py", KERNELS)
    found.tests(TESTS)
    return found


def configured(project, name, **keys):
    row = {"name": "kernels", "backend": "substitute", "replace": {"torch.sum": f"mine.{name}"}, "forward_only": True}
    project.configure(candidates=[{**row, **keys}], cases=3)


@pytest.mark.parametrize(
    ("kernel", "kind", "said", "keys"),
    [
        ("sum_that_keeps_a_total", "mutation", "writes 1 element behind", {}),
        ("sum_with_a_masked_tail", "value", "reads beside its inputs", {"isolated": True}),
        (
            "sum_in_a_block_of_four",
            "mutation",
            "writes 1 element behind the float32[3] that it gets from torch.empty",
            {},
        ),
        pytest.param(
            "sum_in_a_block_of_four",
            "mutation",
            "writes 1 element behind the float32[3] that it gets from torch.empty",
            {"isolated": True},
            marks=pytest.mark.heavy,
        ),
    ],
    ids=["write", "read, isolated", "write beside a result", "write beside a result, isolated"],
)
def test_run__kernel_out_of_bounds__is_found_with_a_repro(project, kernel, kind, said, keys):
    configured(project, kernel, **keys)
    done = project.run()
    findings = {item["kind"]: item for item in project.report()["findings"]}
    assert (done.status, kind in findings) == (1, True), done.said
    finding = findings[kind]
    assert (finding["operator"], finding["confirmed"], finding["repro_verified"]) == ("torch.sum", True, True), (
        done.said
    )
    assert said in finding["message"], done.said
    repro = project.repro(finding)
    assert (repro.status, repro.out.splitlines()[-1]) == (1, "misaligned: the candidate is not fixed"), repro.said


def test_run__right_kernel__is_aligned(project):
    configured(project, "right_sum")
    done = project.run()
    assert done.status == 0, done.said


def test_run__guard_of_another_backend__is_refused(project):
    project.configure(candidates=[{"name": "torch", "backend": "torch", "guard": True}])
    done = project.run()
    assert (done.status, "has 'guard', which backend torch does not use" in done.err) == (2, True)
