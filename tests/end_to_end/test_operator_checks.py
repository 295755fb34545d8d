"""Operators of a library are checked by a run: what one declares and does not do is a finding with a repro of its own."""

from __future__ import annotations

import pytest

from tests.projects import Project

pytestmark = pytest.mark.heavy

KERNELS = """
import torch


@torch.library.custom_op("mine::exp", mutates_args=())
def exp(x: torch.Tensor) -> torch.Tensor:
    return x.exp()


@exp.register_fake
def _(x):
    return x.new_empty(x.numel())
"""
TESTS = """
@autotest(n=3, profiles=())
def exponential():
    return torch.exp(random_tensor(2))
"""
NAMED = {"import": ["mine"], "replace": {"torch.exp": "torch.ops.mine.exp"}}
ROWS = {
    "kernels": NAMED,
    "apart": {"replace": {"torch.exp": "mine.exp"}, "isolated": True},
    "unasked": {**NAMED, "opcheck": False},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("operators"))
    project.write("mine.py", KERNELS)
    project.tests(TESTS)
    common = {"backend": "substitute", "forward_only": True}
    project.configure(candidates=[{"name": name, **common, **keys} for name, keys in ROWS.items()])
    return project, project.run()


def test_run__wrong_fake_kernel__is_a_finding_of_each_candidate_that_is_asked(ran):
    project, done = ran
    report = project.report()
    found = {item["candidate"]: item for item in report["findings"]}
    assert (done.status, sorted(found)) == (1, ["apart", "kernels"]), done.said
    for item in found.values():
        seen = (item["operator"], item["kind"], item["confirmed"], item["shrunk"], item["repro_verified"])
        assert seen == ("torch.exp", "metadata", True, True, True)
        assert "candidate: has a fake kernel that gives something else" in item["message"]


def test_repro__wrong_fake_kernel__fails_until_it_is_fixed(ran):
    project, _ = ran
    finding = next(item for item in project.report()["findings"] if item["candidate"] == "kernels")
    repro = project.repro(finding)
    assert (repro.status, "the candidate raises OpCheckError" in repro.out) == (1, True), repro.said
    project.write("mine.py", KERNELS.replace("x.numel()", "x.shape"))
    repro = project.repro(finding)
    assert repro.status == 0, repro.said
