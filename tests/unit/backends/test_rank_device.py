"""Ranks on GPUs need one each; where there are fewer, that is one sentence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ci_autotest.backends.devices import device_of, lacking
from ci_autotest.backends.input_copies import CPU
from ci_autotest.backends.ranks.backend import DTensorBackend
from ci_autotest.backends.ranks.placement_draw import Meshes
from ci_autotest.backends.ranks.processes.rank_device import check_devices, device_of_rank, finish, group_of
from ci_autotest.backends.ranks.processes.rank_process import RankWatch
from ci_autotest.backends.ranks.refusals import refusal_of_ranks
from ci_autotest.backends.registry import build
from ci_autotest.backends.repro_notes import repro_note
from ci_autotest.errors import NotCarriedError, UnavailableError, Unsupported, UnsupportedReason
from ci_autotest.kinds import DdpCandidate, DTensorCandidate, TorchCandidate

_WORDS = "Input tensor data type is not supported for NCCL process group: Short"


def row(**keys: Any) -> DdpCandidate:
    return DdpCandidate(**{"name": "a", "ranks": 4, "device": "cuda", **keys})


@pytest.mark.parametrize(
    ("candidate", "gpus", "said"),
    [
        (row(), 0, "4 ranks on cuda need 4 GPUs, one for each rank, and there are none."),
        (row(), 1, "4 ranks on cuda need 4 GPUs, one for each rank, and there is 1."),
        (row(), 3, "4 ranks on cuda need 4 GPUs, one for each rank, and there are 3."),
        (row(device="npu"), 8, "ranks run on cpu or cuda, not on 'npu'. Write device: cpu."),
    ],
)
def test_check_devices__fewer_gpus_than_ranks__is_one_sentence(candidate: DdpCandidate, gpus: int, said: str):
    with pytest.raises(UnavailableError) as refused:
        check_devices(candidate, gpus)

    assert str(refused.value).startswith(f"candidate 'a': {said}")


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 0), ("cuda", 4), ("cuda", 8)])
def test_check_devices__as_many_as_ranks__are_enough(device: str, gpus: int):
    check_devices(row(device=device), gpus)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_build__ranks_on_gpus_where_there_is_none__is_not_available():
    for candidate in (
        DdpCandidate(name="a", ranks=2, device="cuda"),
        DTensorCandidate(name="a", ranks=2, device="cuda", processes=True),
    ):
        with pytest.raises(
            UnavailableError, match="2 ranks on cuda need 2 GPUs, one for each rank, and there are none"
        ):
            build(candidate, "cuda")


def test_backend__simulated_ranks_on_gpus__is_one_sentence():
    with pytest.raises(UnavailableError) as refused:
        DTensorBackend("a", Meshes(2), device="cuda")

    assert str(refused.value) == "candidate 'a': simulated ranks run on cpu, not on 'cuda'. Write processes: true."


def test_group_of__device_of_a_rank__communicates_by_what_is_made_for_it():
    assert (device_of_rank("cpu", 3), group_of(CPU)) == (CPU, "gloo")
    assert group_of(torch.device("cuda", 1)) == "cpu:gloo,cuda:nccl"
    finish(CPU)


@pytest.mark.parametrize(
    ("gpus", "candidate", "device"),
    [
        (1, TorchCandidate(name="a", device="auto"), "cuda"),
        (1, row(device="auto"), "cpu"),
        (4, row(device="auto"), "cuda"),
        (4, DTensorCandidate(name="a", processes=True, mesh=(2, 2), device="auto"), "cuda"),
        (3, DTensorCandidate(name="a", processes=True, mesh=(2, 2), device="auto"), "cpu"),
        (0, row(device="cuda"), "cuda"),
    ],
)
def test_device_of__auto__is_a_gpu_for_each_rank_or_the_cpu(
    gpus: int, candidate: DdpCandidate, device: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    assert device_of(candidate) == device
    # A repro names the device that was used, and not the wish.
    assert repro_note(candidate, (), "auto").device == device


class _Collective:
    """A collective operation that refuses its tensors, as nccl does for int16, or returns."""

    def __init__(self, namespace: str = "c10d", name: str = "allreduce_", *, refuses: bool = False) -> None:
        self.namespace, self.overloadpacket, self._refuses = namespace, SimpleNamespace(__name__=name), refuses

    def __call__(self) -> None:
        if self._refuses:
            raise TypeError(_WORDS)


def watch_of(device: torch.device, **keys: Any) -> tuple[RankWatch, list[str]]:
    entered: list[str] = []
    return RankWatch(SimpleNamespace(enter_collective=entered.append, device=device), **keys), entered  # type: ignore[arg-type]


def test_dispatch__dtype_that_a_collective_does_not_carry__is_unsupported_with_its_words():
    watch, entered = watch_of(torch.device("cuda", 0))
    with pytest.raises(NotCarriedError) as refused:
        watch.__torch_dispatch__(_Collective(refuses=True), ())

    assert lacking(refused.value) == Unsupported(UnsupportedReason.NO_KERNEL, _WORDS)
    assert refusal_of_ranks(_wrapped(refused.value)) == Unsupported(UnsupportedReason.NO_KERNEL, _WORDS)
    assert entered == ["allreduce"]


def test_dispatch__wrong_call_of_a_collective_on_the_cpu__stays_an_error():
    watch, _ = watch_of(CPU)
    with pytest.raises(TypeError, match="not supported"):
        watch.__torch_dispatch__(_Collective(refuses=True), ())


@pytest.mark.parametrize(
    ("collective", "returns_early", "entered"),
    [
        (_Collective(), False, ["allreduce", ""]),
        (_Collective(), True, ["allreduce"]),
        (_Collective("_c10d_functional", "all_gather_into_tensor"), False, ["all_gather_into_tensor"]),
        (_Collective("_c10d_functional", "wait_tensor"), False, [""]),
        (_Collective("_dtensor", "shard_dim_alltoall"), True, ["shard_dim_alltoall", ""]),
        (_Collective("aten", "add"), False, []),
    ],
    ids=["group", "group that returns early", "functional", "wait", "DTensor's own on GPUs", "none"],
)
def test_dispatch__collective__is_left_where_it_is_done(
    collective: _Collective, returns_early: bool, entered: list[str]
):
    watch, found = watch_of(CPU, returns_early=returns_early)
    watch.__torch_dispatch__(collective, ())

    assert found == entered


def _wrapped(error: Exception) -> Exception:
    """Return an error as DTensor raises it, with the placements."""
    found = RuntimeError("Sharding propagation failed")
    found.__cause__ = error
    return found
