"""The answers of ranks in processes of their own become one trace: what one rank has alone is not lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

import ci_autotest
from ci_autotest.backends.ranks.placement_draw import Meshes, distributed
from ci_autotest.backends.ranks.processes.dtensor_processes import Processes
from ci_autotest.backends.ranks.processes.process_group import RankLoss, RankMessage, Stuck
from ci_autotest.backends.ranks.processes.rank_answer import Plain, Raise, RankAnswer, Whole
from ci_autotest.backends.ranks.processes.rank_process import Place
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.distribution import Distribution
from tests.engine import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.trace import Trace


class Answers:
    """A group whose ranks have given these answers, the first of them with these buffers."""

    def __init__(self, answers: list[RankAnswer], *buffers: bytes) -> None:
        self._answers, self._buffers = answers, [memoryview(each) for each in buffers]

    def exchange(self, _head: bytes, _buffers: object, decode: Callable[[bytes], RankAnswer]) -> dict[int, RankMessage]:
        heads = [decode(msgspec.json.encode(one)) for one in self._answers]
        return {rank: RankMessage(head, self._buffers) for rank, head in enumerate(heads)}

    def end(self) -> None:
        """Do nothing: there are no processes."""


def merged(*answers: RankAnswer, buffers: tuple[bytes, ...] = ()) -> Trace:
    """Return the trace of a sum of two inputs of two elements, from what its ranks have answered."""
    group: Any = Answers(list(answers), *buffers)
    attempt = record(lambda: ci_autotest.random_tensor(1, 2) + ci_autotest.random_tensor(1, 2))
    cotangents = {0: torch.ones(2)}
    return Processes(group, (len(answers),)).whole_run(attempt.program, attempt.sources, cotangents)


REFUSAL = Raise(2, "RuntimeError", "no rule", Unsupported(UnsupportedReason.PLACEMENT_REFUSED, "no rule"))
OF_KERNEL = Raise(2, "RuntimeError", "no rows")


@pytest.mark.parametrize("ranks", [(REFUSAL, OF_KERNEL), (OF_KERNEL, REFUSAL)], ids=["first", "last"])
def test_whole_run__kernel_raises_where_another_rank_refuses__is_the_error_of_the_kernel(ranks: tuple[Raise, ...]):
    forward = merged(*(RankAnswer(failure=one) for one in ranks)).failure
    backward = merged(*(RankAnswer(backward_failure=one) for one in ranks))

    assert forward is not None
    assert (forward.message, forward.lacking) == ("no rows", None)
    assert backward.backward_failure is not None
    assert (backward.backward_failure.message, backward.backward_lacking) == ("no rows", None)


def test_whole_run__all_ranks_refuse__is_refused():
    found = merged(RankAnswer(failure=REFUSAL), RankAnswer(failure=REFUSAL)).failure

    assert found is not None
    assert found.lacking == REFUSAL.lacking


WHOLE = Whole("float32", (2,), False, False, b"digest", 0, (2,), ("Replicate",))
OTHERS: dict[str, tuple[Any, str]] = {
    "bits": (msgspec.structs.replace(WHOLE, digest=b"other"), "rank 1 holds other bits than rank 0"),
    "dtype": (
        msgspec.structs.replace(WHOLE, dtype="int32"),
        "rank 0 holds float32[2] as Replicate, rank 1 holds int32[2] as Replicate",
    ),
    "flag": (
        msgspec.structs.replace(WHOLE, requires_grad=True),
        "rank 0 holds float32[2] as Replicate, rank 1 holds float32[2] that requires grad as Replicate",
    ),
    "placement": (
        msgspec.structs.replace(WHOLE, placements=("Shard(0)",)),
        "rank 0 holds float32[2] as Replicate, rank 1 holds float32[2] as Shard(0)",
    ),
    "number": (Plain(3), "rank 0 holds float32[2] as Replicate, rank 1 holds 3"),
    "nothing": (None, "rank 0 holds float32[2] as Replicate, rank 1 holds nothing"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_whole_run__one_rank_holds_another_tensor__says_how(name: str):
    other, seen = OTHERS[name]
    found = merged(RankAnswer(values={2: WHOLE}), RankAnswer(values={2: other} if other else {}), buffers=(bytes(8),))

    assert [(fault.step, fault.key, fault.seen) for fault in found.rank_faults] == [(2, None, seen)]


def test_whole_run__one_rank_reads_a_number_and_another_holds_a_tensor__says_so():
    (fault,) = merged(RankAnswer(values={2: Plain(3)}), RankAnswer(values={2: WHOLE})).rank_faults

    assert fault.seen == "ranks read 3, float32[2] as Replicate"


@pytest.mark.parametrize(
    ("first", "last"), [([], [(0, WHOLE)]), ([(0, None)], [(0, WHOLE)])], ids=["no entry", "no gradient"]
)
def test_whole_run__only_the_last_rank_has_a_gradient__is_a_fault(first: list[Any], last: list[Any]):
    found = merged(RankAnswer(gradients=first), RankAnswer(gradients=last))

    assert found.gradients == {0: None}
    assert [(fault.step, fault.key, fault.seen) for fault in found.rank_faults] == [
        (0, 0, "rank 0 holds nothing, rank 1 holds float32[2] as Replicate")
    ]


def test_whole_run__ranks_hold_the_same__no_fault():
    answers = (
        RankAnswer(values={2: WHOLE}, gradients=[(0, WHOLE)]),
        RankAnswer(
            values={2: msgspec.structs.replace(WHOLE, buffer=-1)},
            gradients=[(0, msgspec.structs.replace(WHOLE, buffer=-1))],
        ),
    )
    found = merged(*answers, buffers=(bytes(8),))

    assert not found.rank_faults
    assert found.values[2].tolist() == found.gradients[0].tolist() == [0, 0]


class Stopped:
    """A group that was ended."""

    def __init__(self, how: Stuck) -> None:
        self.how = how

    def exchange(self, _head: bytes, _buffers: object, _decode: object) -> Stuck:
        return self.how


IN_SUM = Place(2, 5, "all_reduce")
#: After the last step, the first input is gathered.
IN_INPUT = Place(0, 9, "all_gather_into_tensor")
GONE = RankMessage(RankAnswer(failure=Raise(0, "RuntimeError", "connection closed")), [])
STOPPED: dict[str, tuple[Stuck, str]] = {
    "a rank ended, and another raised as it gathered an input": (
        Stuck({0: GONE}, {}, {1: RankLoss("ended with status 3", IN_SUM, 3)}),
        "rank 1 ended with status 3, rank 0 raised RuntimeError",
    ),
    "both wait, one of them for an input": (
        Stuck({}, {0: IN_INPUT, 1: IN_SUM}, {}),
        "rank 0 waits for ever in all_gather_into_tensor, rank 1 waits for ever in all_reduce",
    ),
}


@pytest.mark.parametrize("name", STOPPED)
def test_whole_run__group_was_ended__is_a_fault_of_the_call_and_says_how_inputs_lay(name: str):
    how, seen = STOPPED[name]
    group: Any = Stopped(how)
    attempt = record(lambda: ci_autotest.random_tensor(1, 2) + ci_autotest.random_tensor(1, 2))
    program = distributed(attempt, Meshes(2), ("Shard(0)",))
    found = Processes(group, (2,)).whole_run(program, attempt.sources, {})

    assert [(fault.step, fault.seen) for fault in found.rank_faults] == [(2, seen)]
    assert found.distributions == dict.fromkeys((0, 1), Distribution((2,), ("Shard(0)",)))
