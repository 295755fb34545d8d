"""Ranks that share a batch, as a user starts them: a wrapper's fault is found, shrunk, and shown by a script."""

from __future__ import annotations

from typing import Any

import pytest

from tests.projects import Project, outcomes

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

pytestmark = pytest.mark.heavy

TESTS = """
@autotest(n=2, profiles=())
def layers():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())(random_tensor(2, dim0=6, dim1=3))


@autotest(n=2, profiles=())
def training():
    layer = real.nn.Linear(3, 2)
    optimizer = real.optim.SGD(layer.parameters(), lr=0.1)
    layer(random_tensor(2, dim0=6, dim1=3, requires_grad=False)).square().mean().backward()
    optimizer.step()
    return layer(random_tensor(2, dim0=6, dim1=3, requires_grad=False))


@autotest(n=2, profiles=())
def normalized():
    x = random_tensor(3, dim0=6, dim1=3, dim2=1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))(x.view(x.size(0), 3))


@autotest(n=2, profiles=(), batch={9: 0})
def misnamed():
    return torch.nn.Linear(3, 2)(random_tensor(2, dim0=6, dim1=3))
"""
WRAPPERS = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def _sum(_, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def summed(module, ranks):
    wrapped = DistributedDataParallel(module)
    wrapped.register_comm_hook(None, _sum)
    return wrapped


def unsynchronised(module, ranks):
    wrapped = DistributedDataParallel(module)
    wrapped.require_backward_grad_sync = False
    return wrapped


def softened(module, ranks):
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm1d):
            layer.eps = 0.01
    return DistributedDataParallel(module)
"""
#: A right wrapper may put other modules around those of the body.
MENDED = """
import torch
from torch.nn.parallel import DistributedDataParallel


class Around(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def summed(module, ranks):
    for owner in list(module.modules()):
        for name, child in list(owner.named_children()):
            setattr(owner, name, Around(child))
    return DistributedDataParallel(module)


softened = unsynchronised = summed
"""
_PER_SLICE = (
    "compared per slice: the rows of the batch are not independent here, as in a BatchNorm in training without "
    "synchronisation"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    project = Project(tmp_path_factory.mktemp("parallel"))
    project.tests("import torch as real\n" + TESTS)
    project.write("mytraining.py", WRAPPERS)
    project.configure(
        candidates=[
            {"name": "ddp", "backend": "ddp", "ranks": 2},
            {"name": "fsdp", "backend": "fsdp", "ranks": 2},
            {"name": "summed", "backend": "ddp", "ranks": 3, "wrap": "mytraining:summed"},
            {"name": "unsynchronised", "backend": "ddp", "ranks": 2, "wrap": "mytraining:unsynchronised"},
            {"name": "softened", "backend": "ddp", "ranks": 2, "wrap": "mytraining:softened"},
            {"name": "none", "backend": "ddp", "ranks": 2, "wrap": "mytraining:no_such"},
        ]
    )
    assert project.run().status == 1
    return project


@pytest.fixture(scope="module")
def report(project: Project) -> dict[str, Any]:
    return project.report()


def test_run__wrappers_of_torch_and_faulty_ones__are_told_apart(report):
    found = outcomes(report)

    tests = ("layers", "training", "normalized")
    assert {found[test, name] for test in tests for name in ("ddp", "fsdp")} == {"aligned"}
    assert {found["layers", "summed"], found["training", "unsynchronised"]} == {"misaligned"}
    assert (found["layers", "softened"], found["normalized", "softened"]) == ("aligned", "misaligned")


def test_run__batch_norm__says_that_it_was_compared_per_slice(report):
    finding = _of(report, "softened", "torch.nn.Sequential")

    assert (finding["kind"], finding["detail"], finding["repro_verified"]) == ("value", _PER_SLICE, True)
    noted = [note for note in report["notes"] if note.endswith(_PER_SLICE)]
    assert {note.partition(": ")[0].rpartition("::")[2] for note in noted} == {"normalized"}
    assert {note.split(": on ")[1].partition(",")[0] for note in noted} >= {"ddp", "fsdp", "softened"}


def test_run__batch_that_names_no_tensor__is_a_broken_test(report):
    (broken,) = report["broken"]

    assert broken["message"].startswith("autotest(batch={9: 0}) names tensor 9, and the body draws only tensor 0.")


def test_run__wrapper_that_is_not_there__is_one_sentence(report):
    (info,) = (each for each in report["candidates"] if each["name"] == "none")

    assert info["reason"].endswith("wrap: module 'mytraining' has no function 'no_such'. Correct the name.")


def test_run__sum_on_three_ranks__is_shrunk_to_two(report):
    finding = _of(report, "summed", "torch.nn.Sequential")

    assert (finding["kind"], finding["confirmed"], finding["repro_verified"]) == ("gradient", True, True)
    assert "# on 2 ranks, wrapped by mytraining.summed; the code below is the reference's" in finding["program"]


@pytest.mark.parametrize(
    ("candidate", "operator"),
    [
        pytest.param("summed", "torch.nn.Sequential", id="automatic backward pass", marks=pytest.mark.matrix),
        pytest.param("unsynchronised", "torch.nn.functional.linear", id="optimizer"),
        pytest.param("softened", "torch.nn.Sequential", id="compared per slice", marks=pytest.mark.matrix),
    ],
)
def test_repro__alone__starts_its_ranks_and_fails_until_the_wrapper_is_mended(project, report, candidate, operator):
    finding = _of(report, candidate, operator)

    assert project.repro(finding).status == 1
    project.write("mytraining.py", MENDED)
    try:
        assert project.repro(finding).status == 0
    finally:
        project.write("mytraining.py", WRAPPERS)


def _of(report: dict[str, Any], candidate: str, operator: str) -> dict[str, Any]:
    return next(each for each in report["findings"] if (each["candidate"], each["operator"]) == (candidate, operator))


REPLAYING = """
from torch.nn.parallel import DistributedDataParallel

kept = {}


def replayed(module, args, outputs):
    (output,) = outputs
    value = kept.setdefault(tuple(output.shape), output.detach().clone())
    return (output - output.detach() + value,)


def replaying(module, ranks):
    module.register_forward_hook(replayed)
    return DistributedDataParallel(module)


def right(module, ranks):
    return DistributedDataParallel(module)
"""
LAYER = """
@autotest(n=2, profiles=())
def layer():
    return torch.nn.Linear(3, 2)(random_tensor(2, dim0=random(2, 60).to(int), dim1=3))
"""


def test_run__ranks_that_answer_as_before__are_found_by_calling_the_body_again(tmp_path):
    project = Project(tmp_path)
    project.write("mytraining.py", REPLAYING)
    project.tests(LAYER)
    rows = [
        {"name": name, "backend": "ddp", "ranks": 2, "wrap": f"mytraining:{name}"} for name in ("right", "replaying")
    ]
    project.configure(candidates=rows)
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (done.status, finding["candidate"], finding["kind"], finding["confirmed"]) == (
        1,
        "replaying",
        "stateful",
        True,
    )
    assert finding["detail"] == "right in the first call of the body, and wrong in a later call with other values"
    assert finding["no_program"] == "calls"
