"""The same seed is the same run: on one worker or two, alone or with others, in shards or whole."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.projects import Done, Project, outcomes, together, without_times

if TYPE_CHECKING:
    from pathlib import Path

#: Each command has a hash seed of its own, as a user's has.
OWN_SERVER = True

#: ``exp`` and ``sin`` are right and write down what they are given; ``tanh`` is wrong.
KERNELS = """
import hashlib
import os
from pathlib import Path

import torch


def told(name, x):
    given = f"{x.dtype}{tuple(x.shape)}{tuple(x.stride())}".encode() + x.detach().numpy().tobytes()
    line = f"{name} {hashlib.sha256(given).hexdigest()}\\n"
    with Path(os.environ["TOLD"]).open("a") as file:
        file.write(line)


def exp(x):
    told("exp", x)
    return torch.Tensor.exp(x)


def sin(x):
    told("sin", x)
    return torch.Tensor.sin(x)


def tanh(x):
    return torch.Tensor.tanh(x) * 1.001
"""
RIGHT = """
@autotest()
def exp():
    return torch.exp(random_tensor())


@autotest()
def sin():
    return torch.sin(random_tensor(ndim=random(1, 4).to(int), requires_grad=False))


"""
WRONG = """
@autotest()
def tanh():
    return torch.tanh(random_tensor(ndim=2) * random(1, 3).to(float)) + 1


"""
DRAWS_ELSEWHERE = """
import torch as real
from noise_of_numpy import noise


@autotest(n=400, profiles=())
def exp():
    return torch.exp(real.from_numpy(noise()))


"""
#: Neither the project's nor installed: nothing but the draws says that it reaches the generators.
ELSEWHERE = """
import random

import numpy as np


def noise():
    return np.random.rand(3).astype("float32") + random.random()
"""
CASES = 60


def project_in(folder: Path, tests: str = RIGHT) -> Project:
    project = Project(folder)
    project.write("mykernels.py", KERNELS)
    project.substitute(
        {f"torch.{name}": f"mykernels.{name}" for name in ("exp", "sin", "tanh") if f"{name}()" in tests}
    )
    project.tests(tests)
    return project


ALONE = "autotests/autotest_all.py::sin"
#: Runs of one project, by the name of their output folder.
VARIANTS = {
    # First: shards plan by what `.autotest/` holds when they begin, and whole runs write it when they end.
    **{f"shard{index}": ("--shard", f"{index}/3") for index in (1, 2, 3)},
    "whole": (),
    "two": ("--workers", "2"),
    "alone": (ALONE,),
    "other": ("--seed", "1"),
    "random": ("--seed", "random"),
}


def given(project: Project, output: str, *words: str) -> Done:
    """Run; what the kernels are given is written to a file named as the output folder."""
    environ = {"TOLD": str(project.folder / f"{output}.told")}
    return project.run(*words, "--cases", str(CASES), "--output", output, environ=environ)


def inputs(project: Project, output: str) -> list[str]:
    return sorted((project.folder / f"{output}.told").read_text("utf-8").splitlines())


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project without a fault after each of ``VARIANTS``."""
    project = project_in(tmp_path_factory.mktemp("right"))
    for done in together(*(partial(given, project, name, *words) for name, words in VARIANTS.items())):
        assert done.status == 0, done.said
    return project


def test_run__every_case__is_given_inputs_of_its_own(right: Project):
    whole = inputs(right, "whole")
    # Six windows of each test have a probe, with two other values beside those of its case: three a sequence of
    # thirteen calls, five of which come once more, three a series of twenty. The first case of each comes once more.
    # One case in eight runs twice between guard bands.
    windows, guarded = CASES // 10, len(range(2, CASES, 8))
    assert len(whole) == 2 * (CASES + windows // 2 * (13 + 5) + windows // 2 * 20 + windows + 2 * guarded)
    # An empty tensor or one zero may come twice.
    assert len(set(whole)) > 2 * (CASES + 2 * windows) * 0.85


def test_run__two_workers__the_same_inputs_and_the_same_report(right: Project):
    assert inputs(right, "two") == inputs(right, "whole")
    assert without_times(right.report("two")) == without_times(right.report("whole"))


def test_run__one_test_alone__the_same_inputs(right: Project):
    assert inputs(right, "alone") == [line for line in inputs(right, "whole") if line.startswith("sin ")]


def test_run__another_test_comes_before__the_same_inputs(right: Project, tmp_path: Path):
    project = project_in(tmp_path)
    first, second = RIGHT.strip().split("\n\n\n")
    before = "@autotest(n=7)\ndef before():\n    return random_tensor().cos()"
    project.tests("\n\n\n".join([before, second, first]) + "\n")
    done = given(project, "more")
    assert done.status == 0, done.said
    assert inputs(project, "more") == inputs(right, "whole")


@pytest.mark.parametrize("name", ["other", "random"])
def test_run__another_seed__other_inputs(name: str, right: Project):
    whole = inputs(right, "whole")
    assert len(set(inputs(right, name)) & set(whole)) < 0.1 * len(whole)


def test_run__seed_random__is_printed_and_replays(right: Project):
    seed = right.report("random")["seed"]
    done = given(right, "replayed", "--seed", str(seed))
    assert done.out.startswith(f"seed {seed}: ")
    assert inputs(right, "replayed") == inputs(right, "random")


def test_run__shards__are_the_whole_run(right: Project):
    parts = [inputs(right, f"shard{index}") for index in (1, 2, 3)]
    assert sorted(line for part in parts for line in part) == inputs(right, "whole")
    assert all(len(part) > CASES / 3 for part in parts)
    done = right.command("report", "shard3", "shard1", "shard2", "--output", "merged")
    assert done.status == 0, done.said
    assert without_times(right.report("merged")) == without_times(right.report("whole"))


def findings(project: Project, output: str) -> dict[str, dict[str, bytes]]:
    """Return the files of each finding."""
    folders = (project.folder / output / "findings").iterdir()
    return {folder.name: {path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project with one finding, after runs on one worker, on two, of its test alone, and in two shards."""
    project = project_in(tmp_path_factory.mktemp("wrong"), RIGHT + WRONG)
    variants = {
        "part1": ("--shard", "1/2"),
        "part2": ("--shard", "2/2"),
        "one": (),
        "two": ("--workers", "2"),
        "alone": ("autotests/autotest_all.py::tanh",),
    }
    common = ("--cases", "6", "--output")
    environ = {"TOLD": os.devnull}
    runs = [partial(project.run, *words, *common, name, environ=environ) for name, words in variants.items()]
    for done in together(*runs):
        assert done.status == 1, done.said
    return project


@pytest.mark.parametrize("name", ["two", "alone"])
def test_run__otherwise__the_same_finding_to_the_byte(name: str, wrong: Project):
    files = [findings(wrong, output) for output in ("one", name)]
    assert [list(found) for found in files] == [[wrong.report("one")["findings"][0]["id"]]] * 2
    for file in ("program.json", "tensors.safetensors", "repro.py"):
        assert [found[file] for found in files[0].values()] == [found[file] for found in files[1].values()], file


def test_run__two_workers__the_same_report(wrong: Project):
    reports = [without_times(wrong.report(name)) for name in ("one", "two")]
    for report, name in zip(reports, ("one", "two"), strict=True):
        for found in report["findings"]:
            for key in ("message", "replay"):
                found[key] = found[key].replace(f"{name}/", "")
    assert reports[0] == reports[1]


def test_run__shards_with_a_finding__merge_into_the_whole_run(wrong: Project):
    done = wrong.command("report", "part1", "part2", "--output", "merged")
    merged, one = wrong.report("merged"), wrong.report("one")
    assert (done.status, merged["exit_code"], merged["shard"]) == (1, 1, [1, 1]), done.said
    assert outcomes(merged) == outcomes(one)
    identity = ("id", "candidate", "operator", "kind", "test", "case", "cases", "of_cases", "tests", "confirmed")
    assert [[item[key] for key in identity] for item in merged["findings"]] == [
        [item[key] for key in identity] for item in one["findings"]
    ]
    assert [item["cases"] for item in merged["results"]] == [item["cases"] for item in one["results"]]
    assert findings(wrong, "merged").keys() == findings(wrong, "one").keys()


def test_run__body_draws_from_numpy_behind_an_import_from_elsewhere__two_workers_the_same_inputs(tmp_path: Path):
    project = project_in(tmp_path / "project", DRAWS_ELSEWHERE)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "noise_of_numpy.py").write_text(ELSEWHERE, encoding="utf-8")
    for workers in ("1", "2"):
        environ = {"TOLD": str(tmp_path / f"{workers}.told"), "PYTHONPATH": str(tmp_path / "elsewhere")}
        done = project.run("--workers", workers, "--output", workers, environ=environ)
        assert done.status == 0, done.said
    one, two = (sorted((tmp_path / f"{workers}.told").read_text("utf-8").splitlines()) for workers in ("1", "2"))
    assert len(set(one)) >= 400  # 400 cases; their probes have values of their own
    assert one == two
