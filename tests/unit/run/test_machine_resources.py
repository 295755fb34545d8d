"""Workers by cores and GPUs, from lists that are passed in: no GPU is needed to choose among them."""

from __future__ import annotations

import pytest

from ci_autotest.run.machine_resources import Gpu, gpus, memory_bytes, slots, visible

GIB = 1 << 30
LISTING = """0, GPU-aaaa, 81000
1, GPU-bbbb, 81000
2, GPU-cccc, 3000
"""
ALL = [Gpu("GPU-aaaa", 81000 << 20), Gpu("GPU-bbbb", 81000 << 20), Gpu("GPU-cccc", 3000 << 20)]


@pytest.mark.parametrize(
    ("restricted", "found"),
    [
        pytest.param(None, ALL, id="all"),
        pytest.param("", [], id="none"),
        pytest.param("1", ALL[1:2], id="by index"),
        pytest.param("2,0", [ALL[2], ALL[0]], id="in its order"),
        pytest.param("GPU-bb", ALL[1:2], id="by the beginning of its uuid"),
        pytest.param("0,7,1", ALL[:1], id="nothing after one that is not there, as CUDA does"),
        pytest.param("-1", [], id="hidden"),
    ],
)
def test_visible__restriction__is_that_of_cuda(restricted, found):
    assert visible(LISTING, restricted) == found


@pytest.mark.parametrize("listing", ["", "NVIDIA-SMI has failed\n", "0, GPU-a, [N/A]\n", "0, GPU-a\n"])
def test_visible__listing_that_names_none__is_none(listing):
    assert visible(listing, None) == []


@pytest.mark.parametrize("query", [("no-such-program",), ("false",)])
def test_gpus__no_driver__is_none(query):
    assert gpus({}, query) == []


def test_gpus__driver__is_asked():
    assert gpus({"CUDA_VISIBLE_DEVICES": "1"}, ("printf", LISTING)) == ALL[1:2]


def seen(found):
    return [slot.get("CUDA_VISIBLE_DEVICES") for slot in found]


@pytest.mark.parametrize(
    ("workers", "cores", "devices", "expected"),
    [
        pytest.param(None, 3, [], [None] * 3, id="no GPU: one a core"),
        pytest.param(5, 2, [], [None] * 5, id="no GPU: as many as asked for"),
        pytest.param(None, 2, ALL[:2], ["GPU-aaaa", "GPU-bbbb"], id="one a GPU"),
        pytest.param(None, 1, ALL[:2], ["GPU-aaaa", "GPU-bbbb"], id="one a GPU with fewer cores"),
        pytest.param(None, 6, ALL[:2], ["GPU-aaaa"] * 3 + ["GPU-bbbb"] * 3, id="several, cores and memory allow"),
        pytest.param(None, 64, ALL[1:], ["GPU-bbbb"] * 4 + ["GPU-cccc"], id="one where memory allows no more"),
        pytest.param(3, 64, ALL[:2], ["GPU-aaaa", "GPU-bbbb", "GPU-aaaa"], id="as many as asked for, in turn"),
    ],
)
def test_slots__machine__gives_workers(workers, cores, devices, expected):
    assert seen(slots(workers, cores, devices)) == expected


@pytest.mark.parametrize(
    ("workers", "cores", "together", "expected"),
    [
        pytest.param(None, 1, 2, ["GPU-aaaa,GPU-bbbb"], id="one group, and a GPU left over"),
        pytest.param(None, 8, 1, ["GPU-aaaa"] * 2 + ["GPU-bbbb"] * 2 + ["GPU-cccc"], id="each for itself"),
        pytest.param(None, 8, 2, ["GPU-aaaa,GPU-bbbb"], id="one worker a group, whatever the cores"),
        pytest.param(None, 8, 3, ["GPU-aaaa,GPU-bbbb,GPU-cccc"], id="all, and memory for one"),
        pytest.param(None, 8, 4, ["GPU-aaaa,GPU-bbbb,GPU-cccc"], id="fewer than are needed: all"),
        pytest.param(2, 8, 2, ["GPU-aaaa,GPU-bbbb"] * 2, id="as many as asked for"),
    ],
)
def test_slots__ranks_on_gpus__workers_see_several(workers, cores, together, expected):
    assert seen(slots(workers, cores, ALL, together)) == expected


def test_memory_bytes__more_workers__have_less_each_but_a_gibibyte():
    few, many = memory_bytes(1), memory_bytes(10_000)
    assert few >= many == GIB
