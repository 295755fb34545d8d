"""Tests of data loaders as a user runs them: the command line, pytest, unittest, the report, and loaders that go wrong."""

from __future__ import annotations

import json

import pytest
from junitparser import JUnitXml

from tests.projects import Project, finding_of, outcomes, processes, python

DATA = """
import os
import signal
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor(float(index))


class Shared(Rows):
    def __init__(self):
        self.rng = numpy.random.default_rng(0)

    def __getitem__(self, index):
        return index + self.rng.normal()


class Lazy(Rows):
    rng = None

    def __getitem__(self, index):
        if self.rng is None:
            self.rng = torch.Generator().manual_seed(7)
        return index + torch.rand((), generator=self.rng)


def by_worker(worker):
    torch.utils.data.get_worker_info().dataset.rng = torch.Generator().manual_seed(worker)


class Own(Rows):
    def __getitem__(self, index):
        return index + torch.rand(())


class Empty(Rows):
    def __len__(self):
        return 0


class Hangs(Rows):
    def __getitem__(self, index):
        time.sleep(1000)


class Dies(Rows):
    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


class Raises(Rows):
    def __getitem__(self, index):
        raise ValueError("picture 3 is damaged")


def spawned():
    class Local(Rows):
        pass

    return DataLoader(Local(), num_workers=2, multiprocessing_context="spawn")


def leaves():
    os._exit(0)


def number():
    return 3
"""
TESTS = """
import unittest

from ci_autotest import loadertest
from data import Own, Shared


@loadertest()
def test_shared():
    return Shared()


@loadertest(id="own")
def test_own():
    return Own()


class Loaders(unittest.TestCase):
    @loadertest(workers=2)
    def test_method(self):
        return Own()
"""
LINE = 1 + DATA.splitlines().index("        self.rng = numpy.random.default_rng(0)")
HEADLINE = "data.Shared on loader: workers 0, 1, 2 and 3 draw the same numbers from self.rng"


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    made.write("data.py", DATA)
    made.write("test_data.py", TESTS)
    return made


def test_run__dataset_holds_a_generator__is_a_finding_with_a_repro(project):
    done = project.run()

    report = project.report()
    finding = finding_of(report, "Shared")
    assert done.status == 1
    assert outcomes(report) == {
        ("test_shared", "loader"): "misaligned", ("own", "loader"): "aligned", ("test_method", "loader"): "aligned",
    }  # fmt: skip
    assert (finding["candidate"], finding["kind"], finding["blame"]) == ("loader", "randomness", "unknown")
    assert (finding["target"], finding["confirmed"], finding["repro_verified"]) == ("data.Shared", True, True)
    assert finding["headline"] == HEADLINE
    assert f"made in data.py:{LINE}" in finding["message"]
    assert "first equal numbers:" in finding["message"]
    junit = JUnitXml.fromfile(str(project.folder / "autotest-report/junit.xml"))
    failures = [case.name for suite in junit for case in suite if case.result]
    assert failures == ["test_shared[loader]"]
    assert HEADLINE in (project.folder / "autotest-report/comment.md").read_text("utf-8").replace("\\", "")


def test_repro__dataset_is_mended__ends_with_0(project):
    project.run("test_data.py::test_shared")
    finding = finding_of(project.report(), "Shared")

    before = project.repro(finding)
    project.write("data.py", DATA.replace("self.rng.normal()", "float(torch.rand(()))"))
    after = project.repro(finding)

    assert (before.status, after.status) == (1, 0), before.said + after.said


def test_run__faults_of_two_loaders_of_one_class__are_two_findings_whose_repros_run(project):
    loader = "@loadertest(id='{0}')\ndef test_{0}():\n    return DataLoader(Lazy(), worker_init_fn={1})\n\n\n"
    source = "from torch.utils.data import DataLoader\nfrom ci_autotest import loadertest\nfrom data import Lazy, by_worker\n\n\n"
    project.write("test_data.py", source + loader.format("train", None) + loader.format("valid", "by_worker"))

    project.run()

    found = project.report()["findings"]
    assert {item["operator"]: (item["headline"], item["repro_verified"]) for item in found} == {
        "train: data.Lazy": ("data.Lazy on loader: workers 0, 1, 2 and 3 draw the same numbers from self.rng", True),
        "valid: data.Lazy": ("data.Lazy on loader: epochs 0 and 1 draw the same numbers from self.rng", True),
    }


@pytest.mark.parametrize("operator", ["data.Shared", "test_data.py::test_shared: data.Shared"], ids=["class", "loader"])
def test_run__known_difference__is_accepted(project, operator):
    row = {"operator": operator, "candidate": "loader", "kind": "randomness", "reason": "an ablation"}
    project.configure(paths=["test_data.py"], known=[row])

    assert project.run().status == 0


def test_run__operators_beside_loaders__have_their_own_candidates(project):
    project.tests("@autotest(n=2)\ndef adds():\n    return random_tensor(2) + 1\n", "test_adds.py")

    done = project.run("--candidate", "torch")

    assert done.status == 1
    assert outcomes(project.report()) == {
        ("adds", "torch"): "aligned", ("test_shared", "loader"): "misaligned", ("own", "loader"): "aligned",
        ("test_method", "loader"): "aligned",
    }  # fmt: skip


def test_run__operators_without_a_candidate__is_refused(project):
    project.tests("@autotest(n=2)\ndef adds():\n    return random_tensor(2) + 1\n", "test_adds.py")

    done = project.run()

    assert done.status == 2
    assert done.err.startswith("no candidate: name one with --candidate")


def test_list__shards__share_the_loaders(project):
    done = project.command("list", "--shards", "3")

    tests = ("test_data.py::test_shared", "own", "test_data.py::Loaders::test_method")
    assert done.status == 0
    assert [done.out.count(f"  {test}  cases 0\n") for test in tests] == [1, 1, 1]


def test_draws__of_a_loader__says_that_it_has_none(project):
    done = project.command("draws", "test_data.py::test_shared")

    assert "test_data.py::test_shared tests a data loader, so it has no draws and no program." in done.said
    assert done.status == 1


def test_pytest_and_unittest__fail_with_the_finding(project):
    under_pytest = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_data.py")
    under_unittest = python(project, "-m", "unittest", "test_data.Loaders")

    assert (under_pytest.status, under_unittest.status) == (1, 0), under_pytest.said + under_unittest.said
    assert f"AssertionError: misaligned: {HEADLINE}" in under_pytest.out
    assert "1 failed, 2 passed" in under_pytest.out


@pytest.mark.parametrize(
    ("factory", "status", "sentence"),
    [
        pytest.param("Own", 0, "✓ aligned: 1 test on 1 candidate, 1 case", id="own numbers"),
        pytest.param("Shared", 1, HEADLINE, id="shared numbers"),
        pytest.param("Empty", 3, "the loader of data.Empty gives no sample", id="no sample"),
        pytest.param("Raises", 1, "its loader failed: ValueError: picture 3 is damaged", id="raises"),
        pytest.param("spawned", 1, "Can't pickle local object 'spawned.<locals>.Local'", id="cannot be pickled"),
        pytest.param("leaves", 1, "the process that ran its loader ended with status 0, without a result.", id="ends"),
        pytest.param("number", 1, "it returned an object of type int. Return a Dataset, an", id="no loader"),
        pytest.param(
            "nothing", 1, "data:nothing cannot be loaded: AttributeError: module 'data' has no", id="no function"
        ),
        pytest.param("", 2, "'data:' names no function. Write MODULE:FACTORY, such as", id="no name"),
    ],
)
def test_loader__factory(project, factory, status, sentence):
    done = project.command("loader", f"data:{factory}")

    assert done.status == status, done.said
    assert sentence in done.said
    assert processes(str(project.folder)) == []


def test_loader__worker_dies__is_said(project):
    done = project.command("loader", "data:Dies", "--set", "case_timeout=30s")

    assert done.status == 1
    # PyTorch raises its error in a handler of the signal that a worker has ended. Where that interrupts the sending of
    # tasks to another worker, a lock stays taken, and the loader waits for ever.
    failed, waits = (
        "its loader failed: RuntimeError: DataLoader worker (pid",
        "ended by signal 9 (SIGKILL), and it waits.",
    )
    assert failed in done.out or waits in done.out, done.said
    assert processes(str(project.folder)) == []


def test_loader__hangs__ends_with_its_workers(project):
    done = project.command("loader", "data:Hangs", "--set", "case_timeout=10s")

    assert done.status == 1
    assert "its loader did not finish in 10 s: a worker, the dataset or the function hangs." in done.out
    assert processes(str(project.folder)) == []


def test_run__body_iterates_a_loader__report_says_that_nothing_tested_it(tmp_path):
    project = Project(tmp_path)
    project.tests(
        "import torch as plain\n"
        "from torch.utils.data import DataLoader, TensorDataset\n\n"
        "@autotest(n=2)\ndef batches():\n"
        "    total = torch.zeros(3)\n"
        "    for (batch,) in DataLoader(TensorDataset(plain.ones(4, 3)), batch_size=2):\n"
        "        total = total + batch.sum(0)\n"
        "    return total\n"
    )

    project.run("--candidate", "torch")

    assert project.report()["notes"] == [
        "autotests/autotest_all.py::batches: the batches of its DataLoader are inputs of both sides, and nothing of the "
        "loader was tested; @loadertest tests it"
    ]


def test_schema__kind_randomness__is_allowed(project):
    project.run("test_data.py::test_shared", "--output", "out")

    assert json.loads((project.folder / "out/report.json").read_text("utf-8"))["findings"][0]["kind"] == "randomness"
