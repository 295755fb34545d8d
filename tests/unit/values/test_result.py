"""The result of a run: which replacements were never called."""

from __future__ import annotations

import pytest

from ci_autotest.values.result import CandidateInfo, not_called
from tests import report_samples as samples

CALLED = {"kernels": {"torch.sigmoid": 2, "torch.mul": 1, "torch.gt": 3, "torch.norm": 1, "torch.exp": 0}}


@pytest.mark.parametrize(
    ("replaces", "missing"),
    [
        (("torch.sigmoid", "torch.mul", "torch.gt"), {}),
        (("torch.linalg.norm", "torch.norm"), {"kernels": ["torch.linalg.norm"]}),
        (("torch.exp",), {"kernels": ["torch.exp"]}),
        (("mypkg.mul",), {"kernels": ["mypkg.mul"]}),
    ],
    ids=["called", "another of the same last name", "counted as none", "an operator of the user's"],
)
def test_not_called__replacements__are_those_without_a_call(replaces, missing):
    info = CandidateInfo(name="kernels", backend="substitute", replaces=replaces)
    assert not_called(samples.run(candidates=(info,), calls=CALLED, findings=())) == missing
