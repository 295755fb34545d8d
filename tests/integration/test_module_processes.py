"""Ranks that share the batch of a module: right wrappers are aligned, each planted fault is found and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_TRAINED = (
    "own_class", "of_torch", "uneven", "mean_loss", "sum_loss", "training", "second_dimension", "running_mean",
    "evaluated",
)  # fmt: skip
_NOT_SPLIT = {
    "normalized": "rows are not independent: sequential of a part of the batch is not that part",
    "over_the_batch": "rows are not independent: softmax of a part of the batch is not that part",
    "no_module": "the test has no parameters that ranks could train",
    "one_row": "ranks cannot share a batch of 1: one has no rows",
    "two_batches": "its inputs have batches of different sizes: 6 in dimension 0 of x and 2 in dimension 0 of tensor.",
}
_OTHER_BITS = "rank 1 holds other bits than rank 0"
#: Kind, place and what the candidate has of each planted fault.
_PLANTED = {
    "sum_instead_of_average": ("gradient", "gradient of module_2.weight", "float32[2, 4] on cpu"),
    "buffers_not_broadcast": ("rank", "state running_mean after the run", _OTHER_BITS),
    "unused_on_one_rank": ("gradient", "gradient of module_2.weight", "float32[2, 4] on cpu"),
    "unused_and_not_looked_for": ("rank", "backward pass", "rank 1 went on, rank 0 waits for ever in allreduce"),
    "other_seed": ("rank", "state weight after the run", _OTHER_BITS),
    "dropped_bucket": ("rank", "gradient of z", _OTHER_BITS),
    "no_sync_left_on": ("rank", "value of parameter", _OTHER_BITS),
    "bfloat16_gradients": ("gradient", "gradient of module_2.weight", "float32[2, 4] on cpu"),
    "fsdp_reduced_in_bfloat16": ("gradient", "gradient of z", "float32[2] on cpu"),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The verdicts of ``tests/module_processes.py``."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.module_processes"],
        cwd=_ROOT, capture_output=True, text=True, check=False, timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    read: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return read


@pytest.mark.parametrize("backend", ["ddp", "fsdp"])
def test_judged__right_wrapper_on_each_body__is_aligned(found, backend: str):
    assert {name: found[backend][name][0] for name in _TRAINED} == dict.fromkeys(_TRAINED, "aligned")


@pytest.mark.parametrize("backend", ["ddp", "fsdp"])
@pytest.mark.parametrize("body", _NOT_SPLIT)
def test_judged__batch_that_cannot_be_split__is_unsupported_with_a_sentence(found, backend: str, body: str):
    outcome, _, _, said, _ = found[backend][body]

    assert outcome == "unsupported"
    assert _NOT_SPLIT[body] in said


def test_judged__right_wrapper_of_the_users__is_aligned(found):
    assert found["right"][0] == "aligned"


@pytest.mark.parametrize("fault", _PLANTED)
def test_judged__planted_fault_of_a_wrapper__is_found_and_named(found, fault: str):
    outcome, kind, _, at, seen = found[fault]

    assert (outcome, (kind, at, seen)) == ("misaligned", _PLANTED[fault])


def test_judged__wrapper_that_returns_nothing__is_an_error_of_its_own(found):
    outcome, kind, _, _, seen = found["nothing_returned"]

    assert (outcome, kind, seen) == ("misaligned", "error", "raises TypeError")
