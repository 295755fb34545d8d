"""The same seed is the same run: on one worker or two, alone or with others, in shards or whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Project, outcomes

if TYPE_CHECKING:
    from pathlib import Path

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
#: What may differ between equal runs: times, and where they ran.
TIMES = {"duration_s"}
CASES = 60


def project_in(folder: Path, tests: str = RIGHT) -> Project:
    project = Project(folder)
    project.write("mykernels.py", KERNELS)
    project.substitute(
        {f"torch.{name}": f"mykernels.{name}" for name in ("exp", "sin", "tanh") if f"{name}()" in tests}
    )
    project.tests(tests)
    return project


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


class Inputs:
    """Run variants of one project and say what the kernels were given, sorted."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.count = 0

    def of(self, *words: str, output: str = "") -> list[str]:
        self.count += 1
        told = self.project.folder / f"told{self.count}"
        done = self.project.run(
            *words, "--cases", str(CASES), "--output", output or f"report{self.count}", environ={"TOLD": str(told)}
        )
        assert done.status == 0, done.said
        self.out = done.out
        return sorted(told.read_text("utf-8").splitlines())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return Inputs(project_in(tmp_path_factory.mktemp("inputs")))


@pytest.fixture(scope="module")
def whole(inputs: Inputs) -> list[str]:
    """Return what the kernels are given in the plain run: one worker, seed 0."""
    return inputs.of(output="whole")


def test_run__every_case__is_given_inputs_of_its_own(whole: list[str]):
    assert len(whole) == 2 * CASES
    # An empty tensor or one zero may come twice.
    assert len(set(whole)) > 2 * CASES * 0.9


def test_run__two_workers__the_same_inputs_and_the_same_report(inputs: Inputs, whole: list[str]):
    assert inputs.of("--workers", "2", output="two") == whole
    reports = [without_times(inputs.project.report(name)) for name in ("whole", "two")]
    assert reports[0] == reports[1]


def test_run__one_test_alone__the_same_inputs(inputs: Inputs, whole: list[str]):
    alone = inputs.of("autotests/autotest_all.py::sin")
    assert alone == [line for line in whole if line.startswith("sin ")]


def test_run__another_test_comes_before__the_same_inputs(whole: list[str], tmp_path: Path):
    project = project_in(tmp_path)
    first, second = RIGHT.strip().split("\n\n\n")
    more = "\n\n\n@autotest(n=7)\ndef before():\n    return random_tensor().cos()\n\n\n"
    project.tests(more + f"{second}\n\n\n{first}\n")
    assert Inputs(project).of() == whole


def test_run__another_seed__other_inputs(inputs: Inputs, whole: list[str]):
    other = inputs.of("--seed", "1")
    assert len(set(other) & set(whole)) < 0.1 * len(whole)


def test_run__seed_random__is_printed_and_replays(inputs: Inputs, whole: list[str]):
    first = inputs.of("--seed", "random", output="random")
    seed = inputs.project.report("random")["seed"]
    assert inputs.out.startswith(f"seed {seed}\n")
    assert len(set(first) & set(whole)) < 0.1 * len(whole)
    assert inputs.of("--seed", str(seed)) == first


def test_run__shards__are_the_whole_run(inputs: Inputs, whole: list[str]):
    parts = [inputs.of("--shard", f"{index}/3", output=f"shard{index}") for index in (1, 2, 3)]
    assert sorted(line for part in parts for line in part) == whole
    assert all(len(part) > CASES / 3 for part in parts)
    done = inputs.project.command("report", "shard3", "shard1", "shard2", "--output", "merged")
    assert done.status == 0, done.said
    reports = [without_times(inputs.project.report(name)) for name in ("whole", "merged")]
    assert reports[0] == reports[1]


def findings(project: Project, output: str) -> dict[str, dict[str, bytes]]:
    """Return the files of each finding."""
    folders = (project.folder / output / "findings").iterdir()
    return {folder.name: {path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project with one finding, from a run on one worker."""
    project = project_in(tmp_path_factory.mktemp("wrong"), RIGHT + WRONG)
    done = project.run("--cases", "6", "--output", "one", environ={"TOLD": "/dev/null"})
    assert done.status == 1, done.said
    return project


def test_run__two_workers__the_same_finding_to_the_byte(wrong: Project):
    wrong.run("--cases", "6", "--output", "two", "--workers", "2", environ={"TOLD": "/dev/null"})
    reports = [without_times(wrong.report(name)) for name in ("one", "two")]
    for report, name in zip(reports, ("one", "two"), strict=True):
        for found in report["findings"]:
            for key in ("message", "replay"):
                found[key] = found[key].replace(f"{name}/", "")
    assert reports[0] == reports[1]
    files = [findings(wrong, name) for name in ("one", "two")]
    assert len(files[0]) == 1
    for name in ("program.json", "tensors.safetensors", "repro.py"):
        assert [found[name] for found in files[0].values()] == [found[name] for found in files[1].values()], name


def test_run__one_test_alone__the_same_finding_to_the_byte(wrong: Project):
    path = "autotests/autotest_all.py::tanh"
    wrong.run(path, "--cases", "6", "--output", "alone", environ={"TOLD": "/dev/null"})
    files = [findings(wrong, name) for name in ("one", "alone")]
    for name in ("program.json", "tensors.safetensors", "repro.py"):
        assert [found[name] for found in files[0].values()] == [found[name] for found in files[1].values()], name


def test_run__shards_with_a_finding__merge_into_the_whole_run(wrong: Project):
    for index in (1, 2):
        done = wrong.run(
            "--cases", "6", "--shard", f"{index}/2", "--output", f"part{index}", environ={"TOLD": "/dev/null"}
        )
        assert done.status == 1, done.said
    done = wrong.command("report", "part1", "part2", "--output", "merged")
    merged, one = wrong.report("merged"), wrong.report("one")
    assert (done.status, merged["exit_code"], merged["shard"]) == (1, 1, [1, 1]), done.said
    assert outcomes(merged) == outcomes(one)
    identity = ("id", "candidate", "operator", "kind", "test", "case", "cases", "of_cases", "tests", "confirmed")
    assert [[item[key] for key in identity] for item in merged["findings"]] == [
        [item[key] for key in identity] for item in one["findings"]
    ]
    assert [item["cases"] for item in merged["results"]] == [item["cases"] for item in one["results"]]
    assert (wrong.folder / "merged" / merged["findings"][0]["repro"]).is_file()
    assert wrong.repro(merged["findings"][0], "merged").status == 1
