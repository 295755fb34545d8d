"""Float64 is asked on the reference, by us: what ends the worker there is told of nobody's kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import Done, Project, finding_of

#: Torch's own kernel of tanh does something else in float64 from here on; the replacement is wrong in float32.
KERNELS = """
import ctypes, os, time
from pathlib import Path

import numpy
import torch


def in_float64():
    {what}


def of_torch(x):
    if x.dtype is torch.float64:
        in_float64()
    return torch.from_numpy(numpy.asarray(numpy.tanh(x.detach().numpy())))


LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("tanh", of_torch, "CPU")


def tanh(x):
    return torch.tanh(x) + {off}
"""
BODY = "@autotest(n={n}, profiles=[])\ndef a_test():\n    return torch.tanh(random_tensor())\n"


def run_of(project: Project, what: str, *words: str, n: int = 3, off: int = 1) -> Done:
    project.substitute({"torch.tanh": "mykernels.tanh"}, case_timeout="8s", memory="1GiB")
    project.write("mykernels.py", KERNELS.format(what=what, off=off))
    project.tests(BODY.format(n=n))
    return project.run("--seed", "1", *words)


@pytest.mark.parametrize(
    ("what", "is_lost"),
    # What hangs is waited for at each question.
    [
        pytest.param("time.sleep(1000)", True, id="hangs", marks=pytest.mark.heavy),
        pytest.param("os._exit(0)", True, id="exits"),
        pytest.param("ctypes.string_at(0)", True, id="segfaults", marks=pytest.mark.matrix),
        pytest.param("raise MemoryError('11.8 GiB')", False, id="raises"),
        pytest.param(
            "x = [bytearray(b'1' * (1 << 24)) for _ in range(256)]; time.sleep(1000)", True, id="takes what there is"
        ),
    ],
)
def test_run__float64_ends_the_worker__is_a_value_finding_of_unknown_blame(tmp_path: Path, what: str, *, is_lost: bool):
    project = Project(tmp_path)
    done = run_of(project, what)
    report = project.report()
    found = finding_of(report, "tanh")
    assert len(report["findings"]) == 1
    told = found["kind"], found["outcome"], found["blame"], found["confirmed"]
    assert told == ("value", "misaligned", "unknown", True), done.said
    assert report["results"][0]["cases"]["misaligned"] == 3
    assert ("float64 was not asked" in found["oracle"]) is is_lost
    assert any("the float64 oracle checked" in note for note in report["notes"]) is is_lost
    assert done.status == 1


def test_run__float64_ends_the_worker_on_a_right_kernel__is_never_asked(tmp_path: Path):
    done = run_of(Project(tmp_path), "os._exit(0)", off=0)
    assert done.status == 0


def test_run__kernel_hangs_once__is_flaky_and_fails_nothing(tmp_path: Path):
    project = Project(tmp_path)
    project.substitute({"torch.tanh": "mykernels.tanh"}, case_timeout="8s")
    project.write(
        "mykernels.py",
        "import time\nfrom pathlib import Path\nimport torch\nMARK = Path(__file__).with_name('hung')\n\n\ndef tanh(x):\n"
        "    if not MARK.exists():\n        MARK.touch()\n        time.sleep(1000)\n    return torch.tanh(x)\n",
    )
    project.tests(BODY.format(n=3))
    done = project.run("--seed", "1")
    found = finding_of(project.report(), "tanh")
    assert (found["outcome"], found["kind"], found["confirmed"]) == ("flaky", "timeout", False), done.said
    assert project.report()["results"][0]["cases"]["aligned"] == 2
    assert done.status == 0
