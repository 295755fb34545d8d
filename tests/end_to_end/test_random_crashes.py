"""A host that crashes once and not again is told apart from one that crashes each time; no other case is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.projects import Project, finding_of, outcomes

pytestmark = pytest.mark.heavy

#: Everything of torch, but for a crash each time and a crash the first time.
FRAMEWORK = """
import torch

globals().update({name: value for name, value in vars(torch).items() if not name.startswith("__")})

import os
from pathlib import Path

__version__ = "0.1-fragile"
BEEN_HERE = Path(__file__).with_name("been-here")


def exp(input):
    if not BEEN_HERE.exists():
        BEEN_HERE.touch()
        os.kill(os.getpid(), 11)
    return torch.exp(input)


def log1p(input):
    os.kill(os.getpid(), 11)
"""
BODIES = """
@autotest(n=6)
def at_random():
    return torch.exp(random_tensor())

@autotest(n=2)
def each_time():
    return torch.log1p(random_tensor())

@autotest(n=6)
def never():
    return torch.tanh(random_tensor())
"""


def test_run__host_that_crashes_at_random__is_flaky_and_loses_no_case(tmp_path: Path):
    project = Project(tmp_path, greatest_s=400)
    project.configure(
        candidates=[{"name": "fragile", "backend": "module", "module": "fragile", "python": sys.executable}]
    )
    project.write("fragile.py", FRAMEWORK)
    project.tests(BODIES)

    done = project.run()

    report = project.report()
    assert outcomes(report) == {
        ("at_random", "fragile"): "flaky", ("each_time", "fragile"): "crashed", ("never", "fragile"): "aligned",
    }, done.said  # fmt: skip
    cases = {each["test"].rpartition("::")[2]: each["cases"] for each in report["results"]}
    assert (cases["at_random"]["flaky"], cases["at_random"]["aligned"]) == (1, 5), "every other case was compared"
    assert (cases["never"]["aligned"], cases["each_time"]["crashed"]) == (6, 2)
    once, always = finding_of(report, "exp"), finding_of(report, "log1p")
    assert (once["outcome"], once["confirmed"]) == ("flaky", False)
    assert (always["outcome"], always["confirmed"]) == ("crashed", True)
    for finding in (once, always):
        assert "signal 11 (SIGSEGV)" in finding["message"]
