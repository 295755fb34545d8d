"""A Ray cluster that loses nodes while a run is on it: the run ends with what a local one shows, or says why not."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Done, Project, ended, finding_of, outcomes, processes, wait_until, without_times

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

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
CASES = {"exp": 60, "tanh": 40}
_GREATEST_S = 900
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

    def lose_node(self, raylet: int) -> None:
        """Lose the node whose raylet is the process with a number."""
        node = next(each for each in self._nodes if each.all_processes["raylet"][0].process.pid == raylet)
        self._cluster.remove_node(node, allow_graceful=False)

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


def marked(module: str) -> list[int]:
    """Return the processes of the cluster that run a module."""
    return [int(line.split()[0]) for line in processes(f"{MARK}={os.environ[MARK]}") if module in line]


def workers() -> int:
    """Return how many processes of the cluster run cases."""
    return len(marked("ci_autotest.run.worker.main"))


def raylet_of(pid: int) -> int:
    """Return the process that stands for the node of a process; 0 if it has ended."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return 0
    return next((int(each.partition(b"=")[2]) for each in variables if each.startswith(b"RAY_RAYLET_PID=")), 0)


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
            assert wait_until(workers if at == 0 else lambda at=at: calls(project) >= before + at, _GREATEST_S)
            nodes.lose(count)
            lost.append(at)

    thread = threading.Thread(target=lose)
    thread.start()
    done = ended(process, _GREATEST_S)
    thread.join()
    assert lost == list(losses)
    assert wait_until(lambda: workers() == 0, 120)
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
    "middle": (2, {60: 1}),
    "twice": (3, {40: 1, 80: 1}),
    "all-but-one": (3, {60: 2}),
    "near-the-end": (2, {95: 1}),
}


#: The others in ``make matrix``: each takes a minute, and each shard below loses a node early.
ALWAYS = ("all-but-one",)


@pytest.mark.parametrize(
    "when", [when if when in ALWAYS else pytest.param(when, marks=pytest.mark.matrix) for when in LOSSES]
)
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


#: `doubled` is right, writes down which rank ran on which node, and waits from the third case on until a node is lost.
#: The last rank triples in `tripled`.
RULES = """
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

CALLS, LOST = Path(__file__).with_name("calls"), Path(__file__).with_name("lost")


@torch.library.custom_op("spread::doubled", mutates_args=(), schema="(Tensor x) -> Tensor")
def doubled(x):
    if dist.is_initialized():
        with CALLS.open("a") as file:
            file.write(f"{dist.get_rank()} {os.environ['RAY_RAYLET_PID']}\\n")
        while len(CALLS.read_text().splitlines()) > 4 and not LOST.exists():
            time.sleep(0.02)
    return x * 2


@torch.library.custom_op("spread::tripled", mutates_args=(), schema="(Tensor x) -> Tensor")
def tripled(x):
    return x * (3 if dist.is_initialized() and dist.get_rank() == 1 else 2)


for operator in (doubled, tripled):
    operator.register_fake(lambda x: x * 2)
register_sharding(torch.ops.spread.doubled.default)(lambda x: [([Shard(0)], [Shard(0)]), ([Replicate()], [Replicate()])])
register_sharding(torch.ops.spread.tripled.default)(lambda x: [([Replicate()], [Replicate()])])
"""
ON_RANKS = """
@autotest(n=6, profiles=())
def doubled():
    return torch.ops.spread.doubled(random_tensor(2, 4, 3, requires_grad=False))


@autotest(n=2, profiles=())
def tripled():
    return torch.ops.spread.tripled(random_tensor(2, 4, 3, requires_grad=False))
"""


def test_run__ranks_on_three_nodes_of_which_one_is_lost__costs_one_case_and_leaves_nothing(
    tmp_path: Path, cluster: Any
):
    project = Project(tmp_path, _GREATEST_S)
    project.write("spread_rules.py", RULES)
    project.tests(ON_RANKS)
    row = {"name": "spread", "backend": "dtensor", "ranks": 2, "processes": True, "import": ["spread_rules"]}
    project.configure(candidates=[row], case_timeout="300s")
    nodes = cluster(3)
    process = project.start("run", "--executor", "ray", "--workers", "1", environ={"RAY_ADDRESS": nodes.address})
    assert wait_until(lambda: len(ran(project)) > 4, _GREATEST_S)

    before = ran(project)[-2:]
    worker = raylet_of(marked("ci_autotest.run.worker.main")[0])
    rank, lost = next((rank, node) for rank, node in before if node != worker)
    nodes.lose_node(lost)
    assert wait_until(lambda: lost not in map(raylet_of, marked("rank_node")), _GREATEST_S)
    project.write("lost", "")
    done = ended(process, _GREATEST_S)

    assert done.status == 1, done.said
    report = project.report()
    doubled, tripled = (finding_of(report, name) for name in ("doubled", "tripled"))
    assert outcomes(report) == {("doubled", "spread"): "flaky", ("tripled", "spread"): "misaligned"}
    assert [(each["cases"]["aligned"], each["cases"]["flaky"]) for each in report["results"]] == [(5, 1), (0, 0)]
    assert f"rank {rank} was lost with its node" in doubled["detail"]
    assert (tripled["kind"], tripled["confirmed"]) == ("rank", True)
    assert "rank 1 holds other bits than rank 0" in tripled["message"]
    assert len({node for _, node in before}) == 2
    after = {node for _, node in ran(project)[-2:]}
    assert (len(after), lost in after) == (2, False)
    assert wait_until(lambda: marked("rank_node") == [], 120)


def ran(project: Project) -> list[tuple[int, int]]:
    """Return the rank and the node of each call so far."""
    path = project.folder / "calls"
    text = path.read_text() if path.exists() else ""
    return [(int(rank), int(node)) for rank, node in map(str.split, text.splitlines())]
