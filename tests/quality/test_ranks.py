"""Planted faults of sharding rules are found with the right kind and operator; right rules are quiet."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

import ci_autotest
from ci_autotest.alignment.examination import TrialSides
from ci_autotest.alignment.repeatability import judge_confirmed
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.ranks.backend import DTensorBackend
from ci_autotest.backends.ranks.placement_draw import Meshes
from tests.engine import RULES, judged, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.values.verdict import Verdict

#: Cases of one body: their placements are drawn, so that one of them cuts or splits the input.
_CASES = range(12)


@pytest.fixture(scope="module")
def backend() -> Iterator[DTensorBackend]:
    """A group of four simulated ranks on a mesh of one dimension."""
    found = DTensorBackend("sharded", Meshes(4, (4,)))
    yield found
    found.close()


def _planted(name: str, body: Callable[[torch.Tensor], torch.Tensor], rules: list[tuple[Any, Any]]) -> Any:
    """Register an operator of one input, whose backward pass has no sharding rule, and return it.

    Args:
        name: Its name in the namespace ``ranks``.
        body: What it computes.
        rules: Placement of its output and of its input, for each way in which DTensor may run it.
    """
    operator: Any = torch.library.custom_op(f"ranks::{name}", body, mutates_args=(), schema="(Tensor x) -> Tensor")
    operator.register_fake(body)
    overload = getattr(torch.ops.ranks, name).default
    register_sharding(overload)(lambda _: [([output], [given]) for output, given in rules])
    return getattr(torch.ops.ranks, name)


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().clone(memory_format=torch.contiguous_format)


def _empty_raises(x: torch.Tensor) -> torch.Tensor:
    if x.device.type == "cpu" and not x.shape[0]:
        message = "no rows"
        raise IndexError(message)
    return x * 2


def _empty_in_double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] else x.double()


def _zeroes_parts(x: torch.Tensor) -> torch.Tensor:
    result = x * 2
    if x.numel() < 30:  # a part: the whole has 6 x 5 elements, and the reference keeps it
        x.data.zero_()
    return result


_SUM = [(Partial(), Shard(0)), (Replicate(), Replicate())]
_DOUBLE = [(Shard(0), Shard(0)), (Shard(1), Shard(1)), (Partial(), Partial()), (Replicate(), Replicate())]
#: Operator, body, rules and the kind of the finding; none for a right rule.
PLANTED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[tuple[Any, Any]], str | None]] = {
    "right_sum": (lambda x: x.sum(0), _SUM, None),
    "right_double": (lambda x: x * 2, _DOUBLE, None),
    "right_transposed": (_transposed, [(Shard(1), Shard(0)), (Replicate(), Replicate())], None),
    # A sum that is not reduced: every rank has its own.
    "sum_as_replicated": (lambda x: x.sum(0), [(Replicate(), Shard(0)), (Replicate(), Replicate())], "rank"),
    # An operator that is not linear, on summands.
    "rectified_partial": (lambda x: x.clamp_min(0), [(Partial(), Partial()), (Replicate(), Replicate())], "value"),
    # The output is said to be cut along the wrong dimension.
    "transposed_wrong": (_transposed, [(Shard(0), Shard(0)), (Replicate(), Replicate())], "rank"),
    # A root whose parts are summed.
    "length_as_sum": (lambda x: (x * x).sum(1).sqrt(), [(Partial(), Shard(1)), (Replicate(), Replicate())], "value"),
    # One rank alone raises, where it has no rows.
    "empty_raises": (_empty_raises, _DOUBLE, "rank"),
    # One rank alone has another dtype, where it has no rows: the simulation fails an assertion.
    "empty_in_double": (_empty_in_double, _DOUBLE, "error"),
    # A kernel overwrites its input on each rank, in a way that no version counter shows.
    "zeroes_parts": (_zeroes_parts, _DOUBLE, "mutation"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_sharding_rule__planted_fault__is_found_with_kind_and_operator(name: str, backend: DTensorBackend):
    body, rules, kind = PLANTED[name]
    operator = _planted(name, body, rules)

    def call() -> object:
        return operator(ci_autotest.random_tensor(2, 6, 5, requires_grad=False))

    attempts = [record(call, case, test=name) for case in _CASES]
    found = [judged(attempt, backend).verdict for attempt in attempts]

    assert all(attempt.is_complete and attempt.trace.failure is None for attempt in attempts)
    assert {_seen(verdict) for verdict in found if verdict.outcome == "misaligned"} == (
        {(f"torch.ops.ranks.{name}", kind)} if kind else set()
    )
    assert any(verdict.outcome == "aligned" for verdict in found)


def _seen(verdict: Verdict) -> tuple[str, str | None]:
    return verdict.operator, verdict.kind


def test_backward__rule_that_is_wrong_for_summands__is_a_gradient_of_its_operator(backend: DTensorBackend):
    forward = _planted("cubed", lambda x: x**3, [_DOUBLE[0], _DOUBLE[1], _DOUBLE[3]])
    slope = _planted("slope", lambda x: 3 * x**2, _DOUBLE)

    def save(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    torch.library.register_autograd(
        "ranks::cubed", lambda context, gradient: gradient * slope(*context.saved_tensors), setup_context=save
    )

    attempts = [record(lambda: forward(ci_autotest.random_tensor(2, 6, 5)), case, test="cubed") for case in _CASES]
    found = [judged(attempt, backend).verdict for attempt in attempts]

    assert {_seen(verdict) for verdict in found if verdict.outcome == "misaligned"} == {
        ("torch.ops.ranks.cubed", "gradient")
    }
    assert any(verdict.outcome == "aligned" for verdict in found)


def test_judge_confirmed__ranks_disagree_in_every_run__is_of_kind_rank(backend: DTensorBackend):
    body, rules, kind = PLANTED["sum_as_replicated"]
    operator = _planted("sum_in_every_run", body, rules)

    assert _confirmed_kinds(operator, backend) == {kind, None}


def test_judge_confirmed__ranks_disagree_in_every_second_run__is_nondeterminism():
    # Six rows on four ranks: only the last rank holds none. The elements of the others are the same in each run.
    backend, calls = DTensorBackend("sharded", Meshes(4, (4,)), ("Shard(0)",)), itertools.count()

    def zeros(x: torch.Tensor) -> torch.Tensor:
        is_off = not x.shape[0] and next(calls) % 2
        return x.new_zeros(5) + int(is_off)

    operator = _planted("unsteady_zeros", zeros, [(Replicate(), Shard(0)), (Replicate(), Replicate())])

    assert _confirmed_kinds(operator, backend) == {"nondeterminism"}


def _confirmed_kinds(operator: Any, backend: DTensorBackend) -> set[str | None]:
    """Return the kinds of an operator's cases, each judged with a second run of each side."""
    sides = TrialSides(backend, TorchBackend(), RULES)
    found = set()
    for case in _CASES:
        attempt = record(lambda: operator(ci_autotest.random_tensor(2, 6, 5, requires_grad=False)), case, test="again")
        found.add(judge_confirmed(live_of(backend.adapted(attempt)), sides).verdict.kind)
    return found
