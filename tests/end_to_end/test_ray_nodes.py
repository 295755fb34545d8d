"""A Ray cluster that loses nodes while a run is on it: the run ends with what a local one shows, or says why not."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Done, Project, ended, processes, wait_until, without_times

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy
ray_cluster = pytest.importorskip("ray.cluster_utils", reason="needs ci-autotest[ray]")

#: Each call is a byte of a file: how far a run is.
KERNELS = """
import os
import time
from pathlib import Path

import torch

CALLS = Path(__file__).parent / ("calls-" + os.environ.get("CI_AUTOTEST_RAY", "local"))


def exp(x):
    time.sleep(0.02)
    with CALLS.open("a") as file:
        file.write(".")
    return torch.Tensor.exp(x)


def tanh(x):
    exp(x)
    return torch.Tensor.tanh(x) * 1.001

"""
BODY = """
@autotest(n={cases})
def {name}():
    return torch.{name}(random_tensor(ndim=2, low=-1, high=1))

"""
MARK = "CI_AUTOTEST_RAY"
CASES = {"exp": 120, "tanh": 40}
_GREATEST_S = 400
_STORE_BYTES = 80 * 1024 * 1024


class Nodes:
    """A cluster of this machine: a head without a core, and nodes with one core each."""

    def __init__(self, count: int) -> None:
        self._cluster = ray_cluster.Cluster()
        self._cluster.add_node(num_cpus=0, object_store_memory=_STORE_BYTES)
        self._nodes = [self._cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES) for _ in range(count)]
        self._cluster.wait_for_nodes()
        self.address = self._cluster.address

    def lose(self, count: int = 1) -> None:
        for _ in range(count):
            self._cluster.remove_node(self._nodes.pop(), allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return what makes a cluster; it is gone after the test. Its processes, and those of its workers, are marked."""
    made: list[Nodes] = []
    monkeypatch.setenv(MARK, f"{request.node.name.replace(' ', '-')}-{os.getpid()}")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")

    def make(count: int) -> Nodes:
        made.append(Nodes(count))
        return made[0]

    yield make
    for nodes in made:
        nodes.shutdown()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("nodes"), _GREATEST_S)
    made.substitute({f"torch.{name}": f"mykernels.{name}" for name in CASES})
    made.write("mykernels.py", KERNELS)
    made.tests("".join(BODY.format(name=name, cases=count) for name, count in CASES.items()))
    done = made.run("--workers", "2", "--output", "local")
    assert done.status == 1, done.said
    return made


def calls(project: Project) -> int:
    """Return how often the kernels of the cluster's workers were called."""
    path = project.folder / f"calls-{os.environ[MARK]}"
    return path.stat().st_size if path.exists() else 0


def workers() -> int:
    """Return how many processes of the cluster run cases."""
    return sum("ci_autotest.run.worker.main" in line for line in processes(f"{MARK}={os.environ[MARK]}"))


def run(project: Project, output: str, nodes: Nodes, losses: dict[int, int], *words: str) -> Done:
    """Run on a cluster that loses nodes.

    Args:
        project: What is run.
        output: The folder of its report.
        nodes: The cluster.
        losses: Nodes that are lost, by the calls that the kernels have had by then; 0: as soon as there is a worker.
        words: More of the command line.
    """
    shutil.rmtree(project.folder / ".autotest", ignore_errors=True)  # what earlier runs found is not run again
    before, lost = calls(project), []
    environ = {"RAY_ADDRESS": nodes.address}
    process = project.start("run", "--executor", "ray", "--output", output, *words, environ=environ)

    def lose() -> None:
        for at, count in losses.items():
            assert wait_until(workers if at == 0 else lambda at=at: calls(project) >= before + at, 200)
            nodes.lose(count)
            lost.append(at)

    thread = threading.Thread(target=lose)
    thread.start()
    done = ended(process, _GREATEST_S)
    thread.join()
    assert lost == list(losses)
    assert wait_until(lambda: workers() == 0, 30)
    return done


#: What is compared of a finding: not how far it was shrunk in the time that there was.
TOLD = ("id", "kind", "outcome", "blame", "test", "case", "attempt", "cases", "of_cases", "tests", "hits", "confirmed")


def shown(report: dict[str, Any]) -> tuple[Any, Any]:
    """Return results and findings without times, and without what tells where a run was."""
    findings = [[item[key] for key in TOLD] for item in report["findings"]]
    return without_times(report["results"]), findings


#: Nodes of a cluster, and which of them are lost when.
LOSSES = {
    "start": (2, {0: 1}),
    "middle": (2, {80: 1}),
    "twice": (3, {40: 1, 100: 1}),
    "all-but-one": (3, {60: 2}),
    "near-the-end": (2, {155: 1}),
}


@pytest.mark.parametrize("when", LOSSES, ids=str)
def test_run__a_node_is_lost__shows_what_local_workers_show(when: str, project: Project, cluster: Any):
    count, losses = LOSSES[when]
    done = run(project, when, cluster(count), losses)
    assert done.status == 1, done.said
    assert shown(project.report(when)) == shown(project.report("local"))


def test_run__every_node_is_lost__ends_with_a_sentence_and_the_report(project: Project, cluster: Any):
    done = run(project, "all", cluster(2), {60: 2})
    assert done.status == 4, done.said
    assert "the Ray cluster has no node left" in done.err
    assert "Traceback" not in done.said
    report = project.report("all")
    assert report["exit_code"] != 0
    assert any("the Ray cluster has no node left" in note for note in report["notes"])
    assert sum(item["cases"]["not_run"] for item in report["results"]) > 0


def test_run__shards_each_with_a_node_lost__merge_into_the_local_run(project: Project, cluster: Any):
    nodes = cluster(3)
    for index in (1, 2):
        done = run(project, f"shard{index}", nodes, {20: 1}, "--shard", f"{index}/2")
        assert done.status == 1, done.said
    done = project.command("report", "shard1", "shard2", "--output", "merged")
    assert done.status == 1, done.said
    assert shown(project.report("merged")) == shown(project.report("local"))
