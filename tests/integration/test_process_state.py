"""What a kernel may leave behind, each in a process of its own that is forked from one that is clean."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import builtins, json, math, os, resource, signal, sys, threading, time, warnings
import torch
from ci_autotest.run.worker.process_state import ProcessState

def one_thread():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

def nothing():
    torch.exp(torch.ones(3, requires_grad=True)).sum().backward()
    with torch.no_grad(), torch.device("meta"):
        torch.ones(3)
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    while len(threading.enumerate()) > 1:
        time.sleep(0.01)

HELD = []
KINDS = {
    "nothing": nothing,
    "default device: was None, is meta": lambda: torch.set_default_device("meta"),
    "default dtype: was torch.float32, is torch.float64": lambda: torch.set_default_dtype(torch.float64),
    "grad mode: was True, is False": lambda: torch.set_grad_enabled(False),
    "inference mode: was False, is True": lambda: (HELD.append(torch.inference_mode()), HELD[0].__enter__()),
    "deterministic algorithms: was False, is True": lambda: torch.use_deterministic_algorithms(True),
    "precision of float32 products: was highest, is medium": lambda: torch.set_float32_matmul_precision("medium"),
    "TF32 of cuDNN: changed": lambda: setattr(torch.backends.cudnn, "allow_tf32", not torch.backends.cudnn.allow_tf32),
    "threads of torch: changed": lambda: torch.set_num_threads(torch.get_num_threads() + 3),
    "autocast on cpu: was False, is True": lambda: torch.autocast("cpu").__enter__(),
    "torch.exp: replaced": lambda: setattr(torch, "exp", torch.log),
    "torch.mm: replaced": lambda: delattr(torch, "mm"),
    "torch.Tensor.exp: replaced": lambda: setattr(torch.Tensor, "exp", torch.log),
    "torch.nn.functional.relu: replaced": lambda: setattr(torch.nn.functional, "relu", torch.log),
    "torch.default_generator: replaced": lambda: setattr(torch, "default_generator", torch.Generator()),
    "builtins.divmod: replaced": lambda: setattr(builtins, "divmod", math.fmod),
    "environment: CI_AUTOTEST_LEFT": lambda: os.environ.__setitem__("CI_AUTOTEST_LEFT", "1"),
    "working folder: changed": lambda: os.chdir("/proc"),
    "limit RLIMIT_AS: changed": lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 42, 1 << 43)),
    "handler of SIGTERM: changed": lambda: signal.signal(signal.SIGTERM, lambda *_: None),
    "signals that are blocked: changed": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}),
    "whether ITIMER_REAL runs: was False, is True": lambda: signal.setitimer(signal.ITIMER_REAL, 100),
    "standard output: closed": lambda: os.close(1),
    "standard error: closed": lambda: os.close(2),
    "standard input: changed": lambda: os.dup2(2, 0),
    "arithmetic of floating point: changed": lambda: torch.set_flush_denormal(True),
    "a Python thread keeps running": one_thread,
    "warnings that raise: was 0, is 1": lambda: warnings.simplefilter("error"),
}
found = {}
warnings.simplefilter("ignore")
for kind, act in KINDS.items():
    read, write = os.pipe()
    if os.fork() == 0:
        state = ProcessState()
        act()
        told = [change.what for change in state.changes()], [change.what for change in state.changes()]
        os.write(write, json.dumps(told).encode())
        os._exit(0)
    os.close(write)
    found[kind] = json.loads(os.fdopen(read).read())
    os.wait()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, tuple[list[str], list[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.heavy
def test_changes__something_is_left_behind__is_named_once(told):
    unlike = {kind: first for kind, (first, _) in told.items() if kind not in {*first, "nothing"}}
    assert unlike.keys() == {"threads of torch: changed", "TF32 of cuDNN: changed", "working folder: changed"}, unlike
    assert all(first[0].startswith(kind.partition(":")[0]) for kind, first in unlike.items())  # said with both values
    assert [kind for kind, (_, second) in told.items() if second] == []


def test_changes__nothing_is_left_behind__nothing_is_told(told):
    assert told["nothing"] == [[], []]
