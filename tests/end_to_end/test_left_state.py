"""Kernels that are right and leave their process changed, among innocent tests that would notice."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.projects import Project, finding_of, outcomes

if TYPE_CHECKING:
    from pathlib import Path

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

KERNELS = '''
import builtins
import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import torch

HERE = os.getcwd()
OLD_SUM = torch.sum
HELD = []


def spoiler(name, spoil):
    def kernel(x):
        result = getattr(torch.Tensor, name)(x)
        spoil()
        return result
    return kernel


def limit_memory():
    held = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (held + (4 << 20), resource.RLIM_INFINITY))


def close_outputs():
    for fd in (1, 2):
        with contextlib.suppress(OSError):
            os.close(fd)


def later(act):
    def wait():
        time.sleep(0.03)
        act()
    threading.Thread(target=wait, daemon=True).start()


def replace_function():
    torch.sum = lambda *args, **kwargs: OLD_SUM(*args, **kwargs) + 1


def patch_builtins():
    builtins.divmod = lambda a, b: (0, 0)


def set_signal():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def set_alarm():
    signal.setitimer(signal.ITIMER_REAL, 5)


def set_environ():
    os.environ["CI_AUTOTEST_LEFT"] = "1"


def enter_inference():
    HELD.append(torch.inference_mode())
    HELD[-1].__enter__()


sigmoid = spoiler("sigmoid", lambda: torch.set_default_device("meta"))
tanh = spoiler("tanh", lambda: torch.set_default_dtype(torch.float64))
exp = spoiler("exp", limit_memory)
square = spoiler("square", lambda: later(lambda: torch.set_default_dtype(torch.float64)))
sqrt = spoiler("sqrt", close_outputs)
log = spoiler("log", replace_function)
sin = spoiler("sin", lambda: torch.set_grad_enabled(False))
cos = spoiler("cos", enter_inference)
abs = spoiler("abs", lambda: os.chdir("/"))
neg = spoiler("neg", set_environ)
sign = spoiler("sign", set_signal)
floor = spoiler("floor", lambda: torch.set_num_threads(7))
ceil = spoiler("ceil", patch_builtins)
trunc = spoiler("trunc", lambda: later(lambda: os._exit(3)))
frac = spoiler("frac", set_alarm)
asin = spoiler("asin", lambda: torch.set_flush_denormal(True))
acos = spoiler("acos", lambda: torch.set_float32_matmul_precision("medium"))


def crash(x):
    ctypes.string_at(0)


def off(x):
    return torch.Tensor.atan(x) + 1


def notice():
    """Raise where this process is not as it was."""
    seen = [
        str(torch.zeros(1).device) != "cpu", torch.get_default_dtype() != torch.float32,
        not torch.is_grad_enabled(), torch.is_inference_mode_enabled(), os.getcwd() != HERE,
        "CI_AUTOTEST_LEFT" in os.environ, signal.getsignal(signal.SIGTERM) != signal.SIG_DFL,
        torch.get_num_threads() != 1, divmod(7, 2) != (3, 1), float(torch.sum(torch.ones(2))) != 2,
        torch.get_float32_matmul_precision() != "highest", sys.float_info.min * 0.5 == 0,
    ]
    if any(seen):
        raise RuntimeError("of two dimensions")
    os.fstat(1), os.fstat(2)
    bytearray(16 << 20)


def erf(x):
    if x.ndim == 2:
        raise RuntimeError("of two dimensions")
    notice()
    return torch.Tensor.erf(x)


def erfc(x):
    notice()
    return torch.zeros(x.shape) + torch.Tensor.erfc(x)
'''
#: Kinds of what is left, each by a kernel of its own: tests by operator.
SPOILERS = {
    "sigmoid": "default device", "tanh": "default dtype", "exp": "RLIMIT_AS", "square": "thread that sets the dtype",
    "sqrt": "closed outputs", "log": "replaced function", "sin": "grad mode", "cos": "inference mode",
    "abs": "folder", "neg": "environment", "sign": "signal handler", "floor": "threads", "ceil": "builtins",
    "trunc": "thread that exits", "frac": "alarm", "asin": "denormals", "acos": "precision",
}  # fmt: skip
#: Tests by operator and number of dimensions, with the outcome that is right.
OTHERS = {
    ("erf", 1): (12, "aligned"), ("erfc", 1): (12, "aligned"),
    ("erf", 2): (2, "misaligned"), ("atan", 1): (2, "misaligned"), ("expm1", 1): (2, "crashed"),
}  # fmt: skip
#: What else a kernel may come to itself: its thread may end the process that it runs alone in.
OWN = dict.fromkeys(("trunc", "frac"), ("misaligned", "crashed", "flaky", "not_run"))
REPLACED = {**{name: name for name in [*SPOILERS, "erf", "erfc"]}, "atan": "off", "expm1": "crash"}
#: Tests of each kind of spoiler, and cases of each test.
EACH, CASES = 2, 3
BODY = """
@autotest(n={cases}, profiles=())
def {operator}{ndim}_{number}():
    x = random_tensor(ndim={ndim}, dim0=4, low=0.1, high=0.9, requires_grad=True)
    return torch.{operator}(x)

"""


def chaotic(folder: Path, seed: int, each: int = EACH) -> Project:
    """Return a project of spoilers and other tests; with one test of each kind of spoiler, fewer of the innocent ones."""
    project = Project(folder, greatest_s=900)
    project.substitute({f"torch.{name}": f"mykernels.{kernel}" for name, kernel in REPLACED.items()})
    project.write("mykernels.py", KERNELS)
    names = [(operator, 1, number) for operator in SPOILERS for number in range(each)]
    names += [(*key, number) for key, (count, _) in OTHERS.items() for number in range(count * each // EACH)]
    random.Random(seed).shuffle(names)  # noqa: S311 - an order
    project.tests(
        "".join(BODY.format(operator=name, ndim=ndim, number=number, cases=CASES) for name, ndim, number in names)
    )
    return project


def table(report: dict) -> dict[str, tuple[int, int]]:
    """Return, by kind of test, the cases that were tried and those whose outcome is right.

    A kernel that leaves something behind may be wrong itself the next time, as a probe of its case shows; it ends no
    process and breaks no test. After two crashes the rest of a window is left alone.
    """
    found: dict[str, tuple[int, int]] = {}
    for item in report["results"]:
        name = item["test"].rpartition("::")[2].rpartition("_")[0]
        operator, ndim = name[:-1], int(name[-1])
        right = OTHERS[operator, ndim][1] if (operator, ndim) in OTHERS else "aligned"
        kind = SPOILERS.get(operator, f"{operator} of {ndim} dimensions, {right}")
        more = {"crashed": ("not_run",)}.get(right, OWN.get(operator, ("misaligned",)) if operator in SPOILERS else ())
        tried, good = found.get(kind, (0, 0))
        found[kind] = tried + CASES, good + sum(item["cases"][outcome] for outcome in {right, *more})
    return found


def counts(report: dict) -> dict[str, dict[str, int]]:
    """Return the counts of the innocent tests."""
    return {
        item["test"]: {name: count for name, count in item["cases"].items() if count}
        for item in report["results"]
        if item["test"].rpartition("::")[2].rpartition("_")[0][:-1] not in SPOILERS
    }


#: Nobody sees from outside that it was called, but what comes after it.
UNSEEN = """
import torch

SEEN = []


def exp(x):
    SEEN.append(x)
    return torch.Tensor.exp(x)


def erf(x):
    if SEEN or x.ndim == 2:
        raise RuntimeError("of two dimensions")
    return torch.Tensor.erf(x)
"""


def test_run__default_device_is_left__innocent_tests_are_aligned_and_the_kernel_is_named(tmp_path: Path):
    project = Project(tmp_path)
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in ("sigmoid", "erf", "erfc")})
    project.write("mykernels.py", KERNELS)
    names = [("sigmoid", 1), ("erf", 1), ("erf", 2), ("erfc", 1)]
    project.tests("".join(BODY.format(operator=name, ndim=ndim, number=0, cases=CASES) for name, ndim in names))
    done = project.run()
    report = project.report()
    assert {name: outcome for (name, _), outcome in outcomes(report).items()} == {
        "sigmoid1_0": "aligned", "erf1_0": "aligned", "erf2_0": "misaligned", "erfc1_0": "aligned",
    }, done.said  # fmt: skip
    assert finding_of(report, "erf")["tests"] == ["autotests/autotest_all.py::erf2_0"]
    (note,) = (note for note in report["notes"] if "left the process changed" in note)
    assert note.startswith("autotests/autotest_all.py::sigmoid1_0 on kernels: torch.sigmoid left the process changed (")
    assert "default device: was None, is meta" in note


def test_run__state_that_nothing_shows__no_test_joins_the_finding_of_another(tmp_path: Path):
    project = Project(tmp_path)
    project.substitute({"torch.exp": "mykernels.exp", "torch.erf": "mykernels.erf"})
    project.write("mykernels.py", UNSEEN)
    names = [("exp", 1), ("erf", 1), ("erf", 2)]
    project.tests("".join(BODY.format(operator=name, ndim=ndim, number=0, cases=CASES) for name, ndim in names))
    done = project.run()
    report = project.report()
    assert {name: outcome for (name, _), outcome in outcomes(report).items()} == {
        "exp1_0": "aligned", "erf1_0": "flaky", "erf2_0": "misaligned",
    }, done.said  # fmt: skip
    found = finding_of(report, "erf", "error")
    assert (found["tests"], found["cases"], found["of_cases"]) == (["autotests/autotest_all.py::erf2_0"], CASES, CASES)
    assert any(
        note.startswith("autotests/autotest_all.py::erf1_0 on kernels: torch.erf (error)") for note in report["notes"]
    )


@pytest.mark.parametrize(
    ("seed", "each"),
    [pytest.param(1, 1, marks=pytest.mark.heavy), pytest.param(1, EACH, marks=pytest.mark.matrix)],
)
def test_run__kernels_leave_state__every_outcome_is_right_on_any_number_of_workers(
    tmp_path: Path, seed: int, each: int
):
    found = {}
    for workers in ("1", "8"):
        folder = tmp_path / workers
        folder.mkdir()
        project = chaotic(folder, seed, each)
        done = project.run("--workers", workers)
        assert done.status == 1, done.said
        report = project.report()
        rows = table(report)
        print(workers, sum(tried for tried, _ in rows.values()), rows)  # noqa: T201 - figures to keep
        assert {kind: row for kind, row in rows.items() if row[0] != row[1]} == {}, done.said
        assert report["broken"] == []
        found[workers] = counts(report)
    assert found["1"] == found["8"]


#: Every call leaves another thread, and the values are off as well.
LEAKING = """
import threading

import torch


def exp(x):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return torch.Tensor.exp(x) + 1
"""


@pytest.mark.heavy
def test_run__candidate_leaves_threads_with_every_call__each_case_counts_once_and_processes_are_not_ended_for_ever(
    tmp_path: Path,
):
    project = Project(tmp_path)
    project.substitute({"torch.exp": "mykernels.exp"})
    project.write("mykernels.py", LEAKING)
    tests = 6
    project.tests("".join(BODY.format(operator="exp", ndim=1, number=n, cases=CASES) for n in range(tests)))
    done = project.run()
    report = project.report()
    (found,) = report["findings"]
    assert (found["outcome"], found["kind"], found["cases"]) == ("misaligned", "value", tests * CASES), done.said
    assert {item["cases"]["misaligned"] for item in report["results"]} == {CASES}
    assert any("a Python thread keeps running" in note for note in report["notes"])
