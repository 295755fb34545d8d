"""The answers of ranks in processes of their own become one trace: what one rank has alone is not lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

import ci_autotest
from ci_autotest.backends.ranks.processes import Processes
from ci_autotest.backends.ranks.rank_answer import Answer, Raise
from ci_autotest.errors import Unsupported, UnsupportedReason
from tests.engine import record

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Trace


class Answers:
    """A group whose ranks have given these answers, the first of them with these buffers."""

    def __init__(self, answers: list[Answer], *buffers: bytes) -> None:
        self._answers, self._buffers = answers, [memoryview(each) for each in buffers]

    def exchange(self, _head: bytes, _buffers: object) -> dict[int, tuple[bytes, list[memoryview]]]:
        return {rank: (msgspec.json.encode(one), self._buffers) for rank, one in enumerate(self._answers)}

    def end(self) -> None:
        """Do nothing: there are no processes."""


def merged(*answers: Answer, buffers: tuple[bytes, ...] = ()) -> Trace:
    """Return the trace of a sum of two inputs of two elements, from what its ranks have answered."""
    group: Any = Answers(list(answers), *buffers)
    attempt = record(lambda: ci_autotest.random_tensor(1, 2) + ci_autotest.random_tensor(1, 2))
    cotangents = {0: torch.ones(2)}
    return Processes(group, (len(answers),)).whole_run(attempt.program, attempt.sources, cotangents)


REFUSAL = Raise(2, "RuntimeError", "no rule", Unsupported(UnsupportedReason.PLACEMENT_REFUSED, "no rule"))
OF_KERNEL = Raise(2, "RuntimeError", "no rows")


@pytest.mark.parametrize("ranks", [(REFUSAL, OF_KERNEL), (OF_KERNEL, REFUSAL)], ids=["first", "last"])
def test_whole_run__kernel_raises_where_another_rank_refuses__is_the_error_of_the_kernel(ranks: tuple[Raise, ...]):
    forward = merged(*(Answer(failure=one) for one in ranks)).failure
    backward = merged(*(Answer(backward_failure=one) for one in ranks))

    assert forward is not None
    assert (forward.message, forward.lacking) == ("no rows", None)
    assert backward.backward_failure is not None
    assert (backward.backward_failure.message, backward.backward_lacking) == ("no rows", None)


def test_whole_run__all_ranks_refuse__is_refused():
    found = merged(Answer(failure=REFUSAL), Answer(failure=REFUSAL)).failure

    assert found is not None
    assert found.lacking == REFUSAL.lacking
