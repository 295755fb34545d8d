"""Ranks that share the batch of a module: right wrappers are aligned, each planted fault is found and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ci_autotest.values.verdict import Verdict

_ROOT = Path(__file__).resolve().parents[2]
_TRAINED = (
    "own_class", "of_torch", "uneven", "mean_loss", "sum_loss", "training", "second_dimension", "sized",
    "running_mean", "evaluated",
)  # fmt: skip
#: Bodies whose rows are not independent: compared per slice.
_PER_SLICE = (
    "normalized", "normalized_and_summed", "normalized_in_a_class", "normalized_by_counts", "normalized_loss", "normalized_in_training",
    "over_the_batch",
)  # fmt: skip
_NOT_SPLIT = {
    "dropped_out": "and dropout draws random numbers, of which each rank has its own.",
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
    # The statistics of the whole batch are given, so that it is what counts.
    "synchronised_with_other_momentum": ("state", "state running_mean after the run", "float32[4] on cpu"),
    "synchronised_without_gradient": ("gradient", "gradient of x", "float32[6, 3] on cpu"),
    "sum_instead_of_average with statistics": ("gradient", "gradient of module_1.weight", "float32[4] on cpu"),
    "other_seed with statistics": ("rank", "state weight after the run", _OTHER_BITS),
    "dropped_bucket with statistics": ("rank", "gradient of module_1.weight", _OTHER_BITS),
    "no_sync_left_on with statistics": ("rank", "value of y", _OTHER_BITS),
    "bfloat16_gradients with statistics": ("gradient", "gradient of tensor", "float32[4] on cpu"),
    "fsdp_reduced_in_bfloat16 with statistics": ("gradient", "gradient of tensor", "float32[4] on cpu"),
    "raises_in_backward": ("error", "backward pass", "raises RuntimeError"),
    "raises_in_backward_on_one_rank": (
        "rank",
        "backward pass",
        "rank 1 raised RuntimeError, rank 0 waits for ever in allreduce",
    ),
    "other_momentum": ("state", "state running_mean after the run", "float32[4] on cpu"),
    "within_others_that_scale": ("value", "value of sequential", "float32[6, 4] on cpu that requires grad"),
    "other_eps": ("value", "value of sequential", "float32[6, 4] on cpu that requires grad"),
    "evaluated_on_rank_0": ("value", "value of sequential", "float32[6, 4] on cpu that requires grad"),
    "evaluated_on_rank_1": ("value", "value of sequential", "float32[6, 4] on cpu that requires grad"),
    # FSDP leaves buffers alone, so that there is one row for each rank.
    "fsdp_other_momentum": ("state", "state running_mean after the run", "float32[2, 4] on cpu"),
    "fsdp_other_count": ("rank", "state num_batches_tracked after the run", _OTHER_BITS),
    "other_momentum_of_a_buffer": ("mutation", "captured after the run", "float32[3] on cpu"),
}
#: Faults that show only if each rank is held against one process on its slice.
_SHOWN_PER_SLICE = {
    "sum_instead_of_average with statistics", "bfloat16_gradients with statistics",
    "fsdp_reduced_in_bfloat16 with statistics", "other_momentum", "other_eps", "evaluated_on_rank_0",
    "evaluated_on_rank_1", "fsdp_other_momentum", "within_others_that_scale",
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The verdicts of ``tests/module_processes.py``."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.module_processes"],
        cwd=_ROOT, capture_output=True, text=True, check=False, timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    read: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return {name: _decoded(each) for name, each in read.items()}


def _decoded(found: dict[str, Any]) -> Any:
    """Return a verdict, or the verdicts on several bodies."""
    if "outcome" in found:
        return msgspec.convert(found, Verdict)
    return {body: msgspec.convert(verdict, Verdict) for body, verdict in found.items()}


@pytest.mark.parametrize("backend", ["ddp", "fsdp"])
def test_judged__right_wrapper_on_each_body__is_aligned(found, backend: str):
    bodies = (*_TRAINED, *_PER_SLICE)

    assert {name: found[backend][name].outcome for name in bodies} == dict.fromkeys(bodies, "aligned")


@pytest.mark.parametrize("backend", ["ddp", "fsdp"])
@pytest.mark.parametrize("body", _NOT_SPLIT)
def test_judged__batch_that_cannot_be_split__is_unsupported_with_a_sentence(found, backend: str, body: str):
    verdict = found[backend][body]

    assert verdict.outcome == "unsupported"
    assert _NOT_SPLIT[body] in verdict.oracle


@pytest.mark.parametrize(
    "wrapper",
    [
        "right", "synchronised", "fsdp_synchronised", "synchronised on normalized_by_instances",
        "synchronised on normalized_after_a_mean", "within_others",
    ],
)  # fmt: skip
def test_judged__right_wrapper_of_the_users__is_aligned(found, wrapper: str):
    assert found[wrapper].outcome == "aligned"


def test_judged__outputs_of_the_whole_batch_in_part__are_unsupported_with_a_sentence(found):
    verdict = found["synchronised on normalized_and_summed"]

    assert verdict.outcome == "unsupported"
    assert "the ranks have some outputs of the whole batch and some that are not" in verdict.oracle


@pytest.mark.parametrize("wrapper", ["synchronised_by_torch", "fsdp_synchronised_by_torch"])
def test_judged__conversion_to_a_module_of_gpus__is_unsupported_with_a_sentence(found, wrapper: str):
    verdict = found[wrapper]

    assert verdict.outcome == "unsupported"
    assert "the wrapper converts to SyncBatchNorm, which needs a GPU, and the ranks are on the CPU" in verdict.oracle


@pytest.mark.parametrize("fault", _PLANTED)
def test_judged__planted_fault_of_a_wrapper__is_found_and_named(found, fault: str):
    verdict = found[fault]

    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")
    assert (verdict.kind, str(verdict.misalignment.at), verdict.misalignment.candidate) == _PLANTED[fault]


def test_judged__fault_of_a_slice__says_that_it_was_compared_per_slice(found):
    said = {name: found[name].misalignment.detail.partition(":")[0] for name in _PLANTED}

    assert {name for name, detail in said.items() if detail == "compared per slice"} == _SHOWN_PER_SLICE
    assert said["other_momentum_of_a_buffer"] == "buffers are compared per slice"


def test_judged__error_of_a_wrapper_that_also_synchronises__is_its_own(found):
    verdict = found["fsdp_synchronised_and_refused"]

    assert (verdict.outcome, verdict.kind) == ("misaligned", "error")
    assert "a fault of the wrapper" in verdict.misalignment.detail


def test_judged__wrapper_that_returns_nothing__is_an_error_of_its_own(found):
    verdict = found["nothing_returned"]

    assert (verdict.outcome, verdict.kind) == ("misaligned", "error")
    assert verdict.misalignment.candidate == "raises TypeError"
