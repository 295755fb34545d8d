"""A repro of ranks starts them itself: what each of them does becomes one exit status.

OneFlow's ranks are those of a fake; those of DTensors are real, and a kernel of theirs misbehaves on one rank alone.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    CALL_MODULE,
    OUTPUT,
    PLACEHOLDER,
    Mapping_,
    Program,
    Ref,
    Step,
    TensorSpec,
)
from ci_autotest.program.json_values import plain_program
from ci_autotest.program.note import HostNote, ModuleNote, Note, note_of
from ci_autotest.program.recording import Recording
from ci_autotest.program.repro.host_script import host_repro_text
from ci_autotest.program.repro.script_facts import ScriptFacts
from ci_autotest.program.repro.torch_script import repro_text
from tests.projects import processes, wait_until

FOLDER = str(Path(__file__).parent.parent / "fakes" / "oneflow_ranks")
PLAIN = TensorSpec("float32", (2,), (1,), 0, 2)
SPEC = replace(PLAIN, distribution=Distribution((2,), ("Shard(0)",)))
INPUT = np.array([0.5, 2.0], np.float32)
DETAILS = ScriptFacts(
    kind="value", title="misaligned", lines=("a line",), rtol=1e-5, atol=1e-6, check_dtype=True, has_backward=False,
    strictness="tolerance", timeout_s=60, folders=(), versions="a fake",
)  # fmt: skip
RESULTS = {"cos": np.cos, "sin": np.sin, "abs": np.abs, "exp": np.exp, "sign": np.sign, "square": np.square}


def run(name: str, kind: str, folder: Path) -> tuple[int, str]:
    """Run the repro of a finding of one call in an empty folder; return its status and what it printed last."""
    steps = (
        Step(PLACEHOLDER, "t0", (SPEC,), (), "x"),
        Step(CALL_FUNCTION, f"oneflow.{name}", (Ref(0),), (), "y"),
        Step(OUTPUT, "output", (Ref(1),), (), "output"),
    )
    program = Program((), steps)
    host = {
        "module": "oneflow", "version": "0.9.0", "python": sys.executable, "on": "3.11",
        "program": plain_program(program), "moved": [0, 1, 2], "parameters": [], "ranks": 2,
    }  # fmt: skip
    tensors = {"t0": struct.pack("<2f", *INPUT), "output_0": RESULTS[name](INPUT).astype(np.float32).tobytes()}
    recording = Recording(
        program, tensors, Note(side=ModuleNote(), host=HostNote(**host), torch="2.13"), {"output_0": PLAIN}
    )
    script = folder / "repro.py"
    script.write_text(host_repro_text(recording, replace(DETAILS, kind=kind)))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": FOLDER},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (done.stdout.splitlines() or [done.stderr])[-1]


@pytest.mark.parametrize(
    ("name", "kind", "status", "last"),
    [
        ("cos", "value", 0, "fixed: nothing differs from the reference any more"),
        ("sin", "rank", 1, "misaligned: rank 0 ended with status 0, rank 1 ended with status 1"),
        ("abs", "rank", 1, "misaligned: rank 0 ended with status 0, rank 1 ended with status 1"),
        ("exp", "crash", 1, "misaligned: rank 0 ended with status 0, rank 1 ended with status -9"),
        ("square", "rank", 1, "misaligned: rank 0 ended with status 0, rank 1 ended with status 0 before its end"),
        ("sign", "error", 1, "misaligned: the candidate is not fixed"),
    ],
)
def test_repro__what_the_ranks_do__is_one_status(name: str, kind: str, status: int, last: str, tmp_path: Path):
    assert run(name, kind, tmp_path) == (status, last)


#: A kernel that is right in one process, and on ranks unless FAULT says what the second of them does.
KERNEL = """
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard
from torch.distributed.tensor.experimental import register_sharding

FAULT = os.environ.get("FAULT")


@torch.library.custom_op("alone::double", mutates_args=(), schema="(Tensor x) -> Tensor")
def double(x):
    if not dist.is_initialized() or os.environ["RANK"] == "0":
        return x * 2
    if FAULT == "raises":
        raise IndexError("the second rank raises")
    if FAULT == "ends":
        os._exit(3)
    if FAULT == "waits":
        Path(os.environ["MARK"]).touch()
        time.sleep(1000)
    return x * 2


double.register_fake(lambda x: x * 2)
register_sharding(torch.ops.alone.double.default)(lambda x: [([Shard(0)], [Shard(0)])])
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    """The repro of a finding of that kernel that the simulation does not show."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "alone.py").write_text(KERNEL)
    steps = (
        Step(PLACEHOLDER, "t0", (SPEC,), (), "x"),
        Step(CALL_FUNCTION, "torch.ops.alone.double", (Ref(0),), (), "y"),
        Step(OUTPUT, "output", (Ref(1),), (), "output"),
    )
    tensors = {"t0": struct.pack("<2f", *INPUT), "output_0": (INPUT * 2).tobytes()}
    note = {"backend": "dtensor", "import": ["alone"], "torch": "2.13", "processes": True, "starts_ranks": True}
    text = repro_text(
        Recording(Program((), steps), tensors, note_of(note), {"output_0": PLAIN}), replace(DETAILS, kind="rank")
    )
    # A group in which nothing moves is watched for five seconds here.
    shorter = text.replace("LONGEST_S, SILENCE_S = 60, 20", "LONGEST_S, SILENCE_S = 60, 5")
    assert shorter != text
    found = folder / "repro.py"
    found.write_text(shorter)
    return found


def begun(script: Path, fault: str, mark: Path) -> subprocess.Popen[str]:
    environ = {**os.environ, "FAULT": fault, "MARK": str(mark), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(script)], env=environ, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("fault", "status", "found"),
    [
        pytest.param("", 0, "aligned: value of y", id="right"),
        pytest.param(
            "raises",
            1,
            "rank 0 waits for ever in all_gather_into_tensor, rank 1 raised IndexError: the second",
            id="raises",
        ),
        # A wrong value is in `end_to_end/test_ranks.py`.
        pytest.param("ends", 1, "rank 1 ended with status 3", id="ends", marks=pytest.mark.heavy),
    ],
)
def test_repro__what_a_rank_of_dtensors_does_alone__is_named_and_ends_with_1(
    fault: str, status: int, found: str, script: Path, tmp_path: Path
):
    process = begun(script, fault, tmp_path / "mark")
    printed, _ = process.communicate()

    assert (process.returncode, found in printed) == (status, True), printed
    assert wait_until(lambda: not processes(str(script)), 60), processes(str(script))


def test_repro__killed_while_a_rank_waits__leaves_no_process(script: Path, tmp_path: Path):
    process = begun(script, "waits", tmp_path / "mark")
    assert wait_until((tmp_path / "mark").exists, 300)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert wait_until(lambda: not processes(str(script)), 60), processes(str(script))


#: Runs a collective under a script's watch, alone, and prints where the rank is afterwards.
_WATCHED = """
import sys, torch, torch.distributed as dist
from ci_autotest.repro_functions import rank_processes
rank_processes.ON_GPUS = False
{watch}
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1] + ".store", 1), rank=0, world_size=1)
watch = CollectiveWatch(sys.argv[1])
with watch:
    {call}
print(repr(open(sys.argv[1]).read()))
"""
#: The watch of a run in the place of the script's.
_OF_A_RUN = """
from ci_autotest.backends.ranks.processes.rank_process import RankWatch


class Place:
    device = torch.device("cpu")

    def enter_collective(self, name):
        with open(sys.argv[1], "w") as file:
            file.write(name)


def CollectiveWatch(_):
    return RankWatch(Place())
"""
_FUNCTIONAL = "dist._functional_collectives.all_reduce(torch.ones(1), 'sum', dist.group.WORLD)"


@pytest.mark.parametrize(
    ("call", "place"),
    [
        pytest.param("dist.all_reduce(torch.ones(1))", "", id="c10d"),
        pytest.param(f"found = {_FUNCTIONAL}", "all_reduce", id="begun"),
        pytest.param(f"found = {_FUNCTIONAL} + 1", "", id="waited for"),
        pytest.param(f"found = {_FUNCTIONAL}.reshape(1, 1).unbind(0)", "all_reduce", id="parts of one"),
    ],
)
@pytest.mark.parametrize("is_of_run", [False, True], ids=["repro", "run"])
def test_watch__collective_that_has_ended__is_left(call: str, place: str, is_of_run: bool, tmp_path: Path):
    """Otherwise ranks that compute for long afterwards are said to wait in it for ever."""
    watch = _OF_A_RUN if is_of_run else "CollectiveWatch = rank_processes.CollectiveWatch"
    script = _WATCHED.format(watch=watch, call=call)
    command = [sys.executable, "-c", script, str(tmp_path / "place")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == repr(place), done.stderr


WEIGHT = TensorSpec("float32", (2, 2), (2, 1), 0, 4)
#: The lines in which a script of ranks on GPUs names them, as they are where there is none.
ON_CPU = {"torch.device('cuda'), torch.device('cpu')": "torch.device('cpu'), torch.device('cpu')",
          "ON_GPUS = True": "ON_GPUS = False"}  # fmt: skip
MESHES = {
    "dtensor": 'DeviceMesh("cuda" if ON_GPUS',
    "ddp": "DistributedDataParallel(",
    "fsdp": 'init_device_mesh("cuda"',
}


def on_gpus(backend: str) -> str:
    """Return the repro of a linear layer on ranks that have a GPU each."""
    setup = (
        Step(PLACEHOLDER, "t1", (WEIGHT,), (), "weight", in_setup=True),
        Step(CALL_FUNCTION, "torch.nn.Linear", (2, 2), (("bias", False),), "layer", in_setup=True),
        Step(CALL_METHOD, "load_state_dict", (Ref(1), Mapping_((("weight", Ref(0)),))), (), "loaded", in_setup=True),
    )
    body = (
        Step(PLACEHOLDER, "t0", (replace(WEIGHT, distribution=Distribution((2,), ("Shard(0)",))),), (), "x"),
        Step(CALL_MODULE, "torch.nn.Linear", (Ref(1), Ref(3)), (), "y"),
        Step(OUTPUT, "output", (Ref(4),), (), "output"),
    )
    plan = {"joins": [[0, "rows", 0]], "rows": [1, 1], "unused": False, "independent": True, "weights": [],
            "of_slices": [], "sizes": []}  # fmt: skip
    tensors = {
        "t0": struct.pack("<4f", 1, 2, 3, 4), "t1": struct.pack("<4f", 1, 0, 0, 1),
        "output_0": struct.pack("<4f", 1, 2, 3, 4),
    }  # fmt: skip
    note = {"backend": backend, "device": "cuda", "torch": "2.13", "plan": plan, "processes": True}
    return repro_text(
        Recording(Program(setup, body), tensors, note_of(note), {"output_0": WEIGHT}), replace(DETAILS, kind="value")
    )


@pytest.mark.heavy
@pytest.mark.parametrize("backend", MESHES)
def test_repro__ranks_on_gpus__differs_from_one_on_the_cpu_in_the_lines_that_name_them(backend: str, tmp_path: Path):
    text = on_gpus(backend)
    assert MESHES[backend] in text
    assert all(each in text for each in ON_CPU)
    for each, other in {**ON_CPU, 'mesh("cuda"': 'mesh("cpu"'}.items():
        text = text.replace(each, other)
    script = tmp_path / "repro.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)

    assert (done.returncode, "aligned: value of y" in done.stdout) == (0, True), done.stdout + done.stderr
