"""The parts of ranks, their placements as they are drawn, and what DTensor refuses by its own word."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

import ci_autotest
from ci_autotest.alignment.cases import differentiate
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operator_usage import placed_calls
from ci_autotest.backends.ranks.backend import DTensorBackend
from ci_autotest.backends.ranks.parts import parts_of
from ci_autotest.backends.ranks.placement_draw import Meshes, distributed
from ci_autotest.backends.ranks.processes import rank_server
from ci_autotest.backends.worker_side import WorkerSide
from ci_autotest.errors import UnavailableError, UnsupportedReason
from ci_autotest.program.distribution import Distribution
from tests.engine import Unreported, judged, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def backend() -> Iterator[DTensorBackend]:
    """A group of four simulated ranks."""
    found = DTensorBackend("sharded", Meshes(4))
    yield found
    found.close()


SPECIAL = torch.tensor([[0.0, -0.0, 1.5, -2.25], [3e38, float("inf"), float("-inf"), 1e-45]])


@pytest.mark.parametrize("mesh", [(2,), (3,), (4,)], ids=str)
def test_parts_of__partial__sum_to_the_tensor_bit_for_bit(mesh: tuple[int, ...]):
    first, *rest = parts_of(SPECIAL, Distribution(mesh, ("Partial",)))

    for part in rest:
        first = first + part

    assert first.numpy().tobytes() == SPECIAL.numpy().tobytes()


def test_parts_of__partial__is_no_multiple_of_the_tensor():
    # An operator that is not linear must give something else on the parts.
    first, second = parts_of(torch.tensor([1.0, -1.0]), Distribution((2,), ("Partial",)))

    assert (first.relu() + second.relu()).tolist() != [1.0, 0.0]


def test_parts_of__transposed__keeps_the_order_of_dimensions_in_memory():
    parts = parts_of(torch.arange(12.0).view(3, 4).t(), Distribution((2,), ("Shard(0)",)))

    assert [part.stride() for part in parts] == [(1, 2), (1, 2)]
    assert torch.cat(parts).tolist() == torch.arange(12.0).view(3, 4).t().tolist()


def _body() -> object:
    return ci_autotest.random_tensor(2, 6, 5) + ci_autotest.random_tensor(2, 6, 5)


def test_distributed__cases__draw_every_placement_and_both_meshes():
    found = [distributed(record(_body, case), Meshes(4), ()) for case in range(60)]
    drawn = {step.args[0].distribution for program in found for step in program.steps if step.op == "placeholder"}

    assert {on.mesh for on in drawn} == {(4,), (2, 2)}
    assert {one for on in drawn for one in on.placements} == {"Shard(0)", "Shard(1)", "Replicate", "Partial"}


def test_distributed__same_case__draws_the_same_and_moves_no_input():
    first, second = record(_body), record(_body)

    assert distributed(first, Meshes(4), ()) == distributed(second, Meshes(4), ())
    assert all(torch.equal(first.sources[key], second.sources[key]) for key in first.sources)


def _linear() -> object:
    module = ci_autotest.torch.nn.Linear(5, 3)
    return ci_autotest.torch.softmax(module(ci_autotest.random_tensor(2, 6, 5)), 1)


def _written() -> object:
    x = ci_autotest.random_tensor(2, 6, 5, requires_grad=False)
    y = x * 2
    y.add_(1)
    return y, x.sum(), ci_autotest.torch.ones(6, 5) + y


def _branch() -> object:
    x = ci_autotest.random_tensor(2, 6, 5)
    return x.mm(x.t()).reshape(-1)[2:7]


def _array() -> object:
    x = ci_autotest.random_tensor(2, 6, 5, requires_grad=False)
    y = x * 2
    y.numpy()
    y.add_(1)
    return y


def _refused_array() -> object:
    x = ci_autotest.random_tensor(2, 6, 5, requires_grad=False)
    y = x.bfloat16()
    with contextlib.suppress(TypeError):
        y.numpy()
    return y


@pytest.mark.parametrize(
    "body", [_body, _linear, _written, _branch, _array, _refused_array], ids=lambda body: body.__name__
)
def test_judged__right_operators_on_ranks__are_aligned_or_refused_by_their_own_word(
    body: Callable[[], object], backend: DTensorBackend
):
    found = [judged(record(body, case, test=body.__name__), backend).verdict for case in range(10)]

    assert {verdict.outcome for verdict in found} <= {"aligned", "unsupported"}
    assert [verdict.outcome for verdict in found].count("aligned") >= 5


def test_judged__plain_tensor_inside_of_an_operator__has_no_sharding_rule(backend: DTensorBackend):
    attempt = record(lambda: ci_autotest.torch.quantile(ci_autotest.random_tensor(2, 6, 5), 0.5, dim=1))

    verdict = judged(attempt, backend).verdict

    assert (verdict.outcome, verdict.reason) == ("unsupported", UnsupportedReason.NO_SHARDING_RULE)


def test_judged__placement_of_a_dimension_that_is_not_there__is_outside_of_the_scope():
    backend = DTensorBackend("sharded", Meshes(2, (2,)), ("Shard(2)",))

    verdict = judged(record(_body), backend).verdict

    assert (verdict.outcome, verdict.reason) == ("unsupported", UnsupportedReason.OUT_OF_SCOPE)
    assert verdict.oracle == "placements: Shard(2); an input has 2 dimensions"


def test_judged__one_rank_raises__is_of_kind_rank_and_names_it():
    # Three rows on four ranks: the last one holds none.
    backend = DTensorBackend("sharded", Meshes(4, (4,)), ("Shard(0)",))

    verdict = judged(record(lambda: ci_autotest.torch.amax(ci_autotest.random_tensor(2, 3, 5), 0)), backend).verdict

    assert (verdict.outcome, verdict.kind, verdict.operator) == ("misaligned", "rank", "torch.amax")
    assert verdict.misalignment is not None
    assert verdict.misalignment.candidate == "rank 3 raised IndexError, ranks 0, 1 and 2 went on"


def test_submit__batch__has_whole_values_and_the_gradients_of_leaves(backend: DTensorBackend):
    attempt = record(_linear)
    differentiate(attempt, TorchBackend())

    (trace,) = backend.submit([attempt], Unreported()).traces()

    assert trace.gradients.keys() == {key for key in attempt.trace.gradients if key == 2 or isinstance(key, tuple)} | {
        key for key in trace.gradients if isinstance(key, int)
    }
    assert not trace.rank_faults
    assert torch.allclose(trace.values[-2], attempt.trace.values[-2])


def test_placed_calls__program_on_ranks__has_each_operator_with_the_placements_of_its_arguments():
    square = DTensorBackend("sharded", Meshes(4, (4,)), ("Shard(0)",))
    attempt = square.adapted(record(_body))

    lay = square.run(attempt.program, attempt.sources).distributions

    assert list(placed_calls(attempt.program.steps, lay)) == [("torch.add", "Shard(0); Shard(0)")]


def test_rank_server__system_other_than_linux__says_what_to_leave_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rank_server, "IS_LINUX", False)

    with pytest.raises(UnavailableError) as refused:
        DTensorBackend("gloo", Meshes(2), processes=WorkerSide())

    assert str(refused.value) == ("candidate 'gloo': processes: true needs Linux. Leave it out to simulate the ranks.")


def wanted(*placements: str, profile: str = "ordinary") -> tuple[str, ...]:
    """Return how an input of two dimensions lies on four ranks, for which a test wants these placements."""
    attempt = record(lambda: ci_autotest.random_tensor(2, 6, 5) * 2)._replace(profile=profile)
    first, *others = attempt.program.body
    spec = replace(first.args[0], placements=placements)
    program = replace(attempt.program, body=(first._replace(args=(spec,)), *others))
    lies = distributed(attempt._replace(program=program), Meshes(4), ()).body[0].args[0].distribution
    return lies.placements[: len(placements)], lies.placements[len(placements) :]


@pytest.mark.parametrize("placement", ["Shard(1)", "Replicate", "Partial"])
def test_distributed__placement_that_a_test_wants__is_the_inputs(placement: str):
    assert wanted(placement) in [((placement,), ()), ((placement,), ("Replicate",))]


def test_distributed__placement_that_an_input_cannot_have__is_drawn():
    assert wanted("Shard(2)")[0] != ("Shard(2)",)
    assert wanted("Partial", profile="special")[0] != ("Partial",)
