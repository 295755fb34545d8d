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
    project = Project(tmp_path)
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


#: A crash, or a hang, the first time that a large input comes, in the middle of a batch.
FIRST_LARGE = """
import torch

globals().update({name: value for name, value in vars(torch).items() if not name.startswith("__")})

import os
import time
from pathlib import Path

__version__ = "0.1-fragile"
BEEN_HERE = Path(__file__).with_name("been-here")


def exp(input):
    if input.numel() > 800 and not BEEN_HERE.exists():
        BEEN_HERE.write_text(str(input.numel()))
        os.kill(os.getpid(), 11)
    return torch.exp(input)


def sin(input):
    if input.numel() > 910:
        time.sleep(600)
    return torch.sin(input)
"""
LARGE = """
@autotest(n=16, profiles=[])
def once():
    return torch.exp(random_tensor(1, random(1, 1000)))

@autotest(n=16, profiles=[])
def hangs():
    return torch.sin(random_tensor(1, random(1, 1000)))
"""


def test_run__host_is_lost_within_a_batch__is_that_of_the_case_that_it_was_at(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(
        candidates=[{"name": "fragile", "backend": "module", "module": "fragile", "python": sys.executable}],
        case_timeout="12s",
    )
    project.write("fragile.py", FIRST_LARGE)
    project.tests(LARGE)

    done = project.run("--workers", "1")

    report = project.report()
    assert outcomes(report) == {("once", "fragile"): "flaky", ("hangs", "fragile"): "timed_out"}, done.said
    cases = {each["test"].rpartition("::")[2]: each["cases"] for each in report["results"]}
    assert (cases["once"]["flaky"], cases["once"]["aligned"]) == (1, 15)
    assert (cases["hangs"]["timed_out"], cases["hangs"]["aligned"]) == (1, 15)
    once, hangs = finding_of(report, "exp"), finding_of(report, "sin")
    assert (once["case"], once["dims_max"]) == (6, 832) == (6, int((tmp_path / "been-here").read_text())), done.said
    assert (hangs["case"], hangs["dims_max"]) == (9, 915)
