"""How the batch of a case is split over ranks, and what its slices must give, without any rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real

from ci_autotest import expect, random_tensor, torch
from ci_autotest.alignment.blame.float64_runs import widened
from ci_autotest.alignment.cases import differentiate
from ci_autotest.alignment.recordings import from_bytes, to_recording, with_expected
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.ranks.training.batch_plan import NotSplitError, RankPlan
from ci_autotest.backends.ranks.training.batch_split import distributed, sliced, why_not_split
from ci_autotest.backends.ranks.training.joins import SAME, Join, joins_of
from ci_autotest.backends.ranks.training.slice_reference import plan_of, split_plan
from ci_autotest.errors import UnsupportedReason
from ci_autotest.program.ir import CALL_METHOD, Program, Ref, Step, output_refs
from ci_autotest.program.training_parts import parts_of_body
from tests.engine import record


def planned(body: Any, ranks: int = 2, **declared: Any) -> tuple[Any, RankPlan]:
    """Return the program of a body that is split, and its plan."""
    shares_buffers = declared.pop("shares_buffers", True)
    attempt = record(body, profiles=(), **declared)
    attempt = attempt._replace(program=distributed(attempt, ranks))
    differentiate(attempt, TorchBackend())
    assert why_not_split(attempt.program, ranks) is None
    slices = sliced(attempt.program, attempt.sources, ranks)
    return attempt, plan_of(attempt.program, attempt.sources, attempt.cotangents, slices, shares_buffers=shares_buffers)


def refusal(body: Any, ranks: int = 2, **declared: Any) -> Any:
    """Return why the batch of a body cannot be split."""
    attempt = record(body, profiles=(), **declared)
    return why_not_split(distributed(attempt, ranks), ranks)


def linear(rows: int = 5) -> Any:
    return torch.nn.Linear(3, 2)(random_tensor(2, rows, 3))


def test_sliced__batch_that_ranks_do_not_divide__has_the_slices_of_chunk():
    attempt, _ = planned(linear)
    slices = sliced(attempt.program, attempt.sources, 2)
    key = next(key for key, source in attempt.sources.items() if source.shape == (5, 3))

    assert slices.rows == [3, 2]
    assert real.equal(real.cat([own[key] for own in slices.sources]), attempt.sources[key])


@pytest.mark.parametrize(
    ("parts", "whole", "joins"),
    [
        ([[1.0, 2.0], [3.0]], [1.0, 2.0, 3.0], [Join("rows", 0)]),
        ([2.0, 5.0], 3.0, [Join("mean")]),
        ([2.0, 5.0], 7.0, [Join("sum")]),
        ([2.0, 2.0], 2.0, [SAME, Join("mean")]),
        ([2.0, 5.0], 4.0, []),
    ],
    ids=["rows", "mean of shares", "sum", "same", "neither"],
)
def test_joins_of__parts_of_a_batch__are_every_way_to_make_the_whole(parts: Any, whole: Any, joins: list[Join]):
    assert joins_of([real.tensor(part) for part in parts], real.tensor(whole), [2 / 3, 1 / 3]) == joins


@pytest.mark.parametrize(
    ("body", "join"),
    [
        (linear, Join("rows", 0)),
        (lambda: linear().square().mean(), Join("mean")),
        (lambda: linear().square().sum(), Join("sum")),
        (lambda: (linear() * 0).sum(), Join("mean")),
    ],
    ids=["rows", "mean", "sum", "zero"],
)
def test_plan_of__output__is_joined_as_the_whole_batch_says(body: Any, join: Join):
    attempt, plan = planned(body)

    assert plan.mixes is None
    assert plan.joins[output_refs(attempt.program)[0].index].kind in {join.kind, "same"}


def test_plan_of__sum_that_is_zero__is_told_from_a_mean_by_its_gradients():
    def body() -> Any:
        layer = real.nn.Linear(3, 2, bias=False)
        real.nn.init.zeros_(layer.weight)
        return layer(random_tensor(2, 4, 3)).sum()

    attempt, plan = planned(body)

    assert plan.mixes is None
    assert plan.joins[output_refs(attempt.program)[0].index] == Join("sum")


def test_plan_of__loss_that_is_a_mean__starts_each_rank_with_its_share_times_the_ranks():
    def body() -> Any:
        layer = real.nn.Linear(3, 2)
        layer(random_tensor(2, 5, 3, requires_grad=False)).square().mean().backward()
        return layer.weight.grad

    _, plan = planned(body)

    (weights,) = plan.weights.values()
    assert weights == pytest.approx([2 * 3 / 5, 2 * 2 / 5])


@pytest.mark.parametrize(
    "body",
    [
        lambda: torch.nn.BatchNorm1d(3)(random_tensor(2, 6, 3)),
        lambda: torch.softmax(linear(6), 0),
        lambda: linear(6).cumsum(0),
    ],
    ids=["batch norm", "softmax over the batch", "cumsum over the batch"],
)
def test_plan_of__rows_that_are_not_independent__expects_what_each_slice_gives(body: Any):
    attempt, plan = planned(body)

    assert plan.mixes is None
    assert plan.expectation is not None
    assert plan.expectation.sentence.startswith("compared per slice: the rows of the batch are not independent here")
    (output,) = plan.expectation.of_whole
    expected, whole = plan.expectation.trace.values[output], attempt.trace.values[output]
    assert expected.shape == whole.shape
    assert not real.allclose(expected, whole)


def test_plan_of__batch_norm__expects_the_gradients_of_both_slices_and_the_statistics_of_the_first():
    attempt, plan = planned(lambda: torch.nn.BatchNorm1d(3)(random_tensor(2, 6, 3)))
    rows, weights = next(iter(attempt.cotangents.values())).chunk(2), {}
    layers = [real.nn.BatchNorm1d(3) for _ in range(2)]
    drawn = next(source for source in attempt.sources.values() if source.shape == (6, 3))
    for layer, part, weight in zip(layers, drawn.chunk(2), rows, strict=True):
        layer.load_state_dict({name: attempt.sources[f"t{at}"] for at, name in enumerate(layer.state_dict())})
        layer(part).backward(weight)
    weights = sum(layer.weight.grad for layer in layers if layer.weight.grad is not None)

    assert plan.expectation is not None
    found = plan.expectation.trace
    (module,) = plan.states[:1]
    assert real.allclose(found.gradients[module, "weight"], real.as_tensor(weights))
    assert real.equal(found.values[module].state_dict()["running_mean"], layers[0].running_mean)


def test_plan_of__ranks_that_share_no_buffers__expects_a_row_of_statistics_for_each():
    _, plan = planned(lambda: torch.nn.BatchNorm1d(3)(random_tensor(2, 6, 3)), shares_buffers=False)

    assert plan.expectation is not None
    state = plan.expectation.trace.values[plan.states[0]].state_dict()
    assert {name: tuple(each.shape) for name, each in state.items()} == {
        "weight": (3,), "bias": (3,), "running_mean": (2, 3), "running_var": (2, 3), "num_batches_tracked": (2,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda: torch.nn.Dropout()(linear(6)), "and dropout draws random numbers, of which each rank has its own"),
        (lambda: (y := linear(6)) @ y.T, "and matmul of the slices cannot be joined"),
        (lambda: expect(linear(6).cumsum(0), lambda: real.zeros(6, 2)), "and the test expects a value of the whole"),
    ],
    ids=["random", "no rows", "expected"],
)
def test_plan_of__rows_that_nothing_is_defined_of__says_so(body: Any, said: str):
    _, plan = planned(body)

    assert plan.expectation is None
    assert plan.mixes is not None
    assert plan.mixes.reason is UnsupportedReason.BATCH
    assert said in plan.mixes.detail
    assert plan.mixes.detail.endswith("Only whether the ranks agree is compared")


def test_plan_of__running_mean__is_that_of_a_slice():
    def body() -> Any:
        layer = torch.nn.BatchNorm1d(3)
        layer(random_tensor(2, 6, 3))
        return torch.nn.Linear(3, 2)(random_tensor(2, 6, 3))

    _, plan = planned(body)

    assert {name for _, name in plan.of_slices} == {"running_mean", "running_var"}
    assert plan.expectation is not None
    assert plan.expectation.sentence.startswith("buffers are compared per slice: running_mean, running_var depend on")


def test_slice_reference__in_float64__joins_values_as_the_run_in_float32_decided():
    def body() -> Any:
        y = torch.nn.BatchNorm1d(3)(random_tensor(2, 6, 3))
        return y, y.square().mean(), y.argmax(0)

    attempt, plan = planned(body)
    assert plan.expectation is not None
    live, places = widened(live_of(attempt))
    backend, expected = plan.expectation.reference, plan.expectation.trace
    trace = backend.run(live.program, live.sources)
    backend.backward(live.program, trace, live.cotangents)

    outputs = [ref.index for ref in output_refs(attempt.program)]
    assert [plan.joins[index].kind for index in outputs] == ["rows", "mean", "each"]
    assert all(real.allclose(trace.values[places[index]].to(expected.values[index].dtype), expected.values[index])
               for index in outputs)  # fmt: skip
    assert all(
        real.allclose(trace.gradients[places[key[0]], key[1]].float(), expected.gradients[key], atol=1e-5)
        for key in plan.keys if isinstance(key, tuple)
    )  # fmt: skip


def differentiated_in_a_view() -> Any:
    """Run a backward pass whose hook-free graph fits the whole batch only."""
    layer = real.nn.Linear(3, 2)
    layer(random_tensor(2, 6, 3, requires_grad=False)).sum(1).backward(real.ones(6))
    return layer.weight.grad


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            lambda: linear(6).view(6, 2),
            "view raises RuntimeError on 3 of 6 rows, and not on all of them: shape '[6, 2]'",
        ),
        (differentiated_in_a_view, "a backward pass of the body raises RuntimeError on the rows of one rank"),
    ],
    ids=["forward", "backward"],
)
def test_plan_of__size_of_the_batch_in_the_body__is_unsupported_for_that_reason(body: Any, said: str):
    with pytest.raises(NotSplitError) as refused:
        planned(body)

    assert refused.value.why.reason is UnsupportedReason.SLICE
    assert said in refused.value.why.detail
    assert refused.value.why.detail.endswith("if it needs more rows than a rank has, draw more")


def viewed() -> Any:
    x = random_tensor(2, 5, 3)
    return torch.nn.Linear(3, 2)(x).view(x.size(0), -1).expand(x.shape[0], 2)


def flattened_after_statistics() -> Any:
    x = random_tensor(2, 6, 4)
    return torch.nn.BatchNorm1d(4)(x).reshape(len(x), -1)


def of_another_meaning() -> Any:
    return torch.nn.Linear(3, 6)(random_tensor(2, 6, 3)).view(-1, 6)


@pytest.mark.parametrize(
    ("body", "names", "is_mixed"),
    [
        (viewed, ["view", "expand"], False),
        (flattened_after_statistics, ["reshape"], True),
        (of_another_meaning, [], False),
    ],
    ids=["rows", "rows that are not independent", "a size that happens to be the same"],
)
def test_split_plan__number_of_rows_as_a_size__is_that_of_a_slice(body: Any, names: list[str], is_mixed: bool):
    attempt = record(body, profiles=())
    attempt = attempt._replace(program=distributed(attempt, 2))
    differentiate(attempt, TorchBackend())

    slices, plan = split_plan(attempt.program, attempt.sources, attempt.cotangents, 2, shares_buffers=True)

    assert [attempt.program.steps[index].name for index in slices.sized] == names
    assert [own.steps[index].args[1] for own in slices.programs for index in slices.sized[:1]] == slices.rows[
        : 2 * bool(names)
    ]
    assert (plan.mixes, plan.is_mixed) == (None, is_mixed)


def test_slice_reference__number_of_rows_as_a_size__is_that_of_a_slice_in_every_later_run():
    def body() -> Any:
        x = random_tensor(3, 8, 3, 1)
        return torch.nn.BatchNorm1d(3)(x.view(x.size(0), 3))

    attempt = record(body, profiles=())
    attempt = attempt._replace(program=distributed(attempt, 2))
    differentiate(attempt, TorchBackend())
    _, plan = split_plan(attempt.program, attempt.sources, attempt.cotangents, 2, shares_buffers=True)
    assert plan.expectation is not None
    (output,) = plan.expectation.of_whole
    reference, expected = plan.expectation.reference, plan.expectation.trace.values[output]

    live = live_of(attempt)
    recorded = with_expected(to_recording(live), live, reference)
    wide, places = widened(live)
    exact = reference.run(wide.program, wide.sources)

    assert exact.failure is None
    assert real.allclose(exact.values[places[output]].float(), expected, atol=1e-5)
    assert real.equal(from_bytes(recorded.tensors["output_0"], recorded.expected["output_0"]), expected)


def test_slice_reference__program_whose_slices_cannot_run__is_a_failure_of_its_own():
    def body() -> Any:
        return torch.nn.BatchNorm1d(2)(linear(6))

    _, plan = planned(body)
    other, _ = planned(lambda: linear(6))
    view = Step(CALL_METHOD, "view", (Ref(len(other.program.steps) - 2), 6, 2), (), "view")
    *rest, output = other.program.body
    assert plan.expectation is not None
    program = Program(other.program.setup, (*rest, view, output), ())

    trace = plan.expectation.reference.run(program, other.sources)

    assert trace.failure is not None
    assert "view raises RuntimeError on 3 of 6 rows" in trace.failure.message


def test_split_plan__number_of_rows_that_is_also_another_size__is_unsupported():
    def body() -> Any:
        x = random_tensor(2, 3, 3)
        return torch.nn.Linear(3, 2)(x).view(x.size(0), -1)

    attempt = record(body, profiles=())
    attempt = attempt._replace(program=distributed(attempt, 2))
    with pytest.raises(NotSplitError) as refused:
        split_plan(attempt.program, attempt.sources, attempt.cotangents, 2, shares_buffers=True)

    assert refused.value.why.reason is UnsupportedReason.SLICE


def test_plan_of__no_parameters__is_unsupported():
    with pytest.raises(NotSplitError) as refused:
        planned(lambda: torch.relu(random_tensor(2, 6, 3)))

    assert refused.value.why.reason is UnsupportedReason.NO_PARAMETERS


@pytest.mark.parametrize(
    ("body", "ranks", "declared", "said"),
    [
        (lambda: linear(3), 4, {}, "4 ranks cannot share a batch of 3: one has no rows"),
        (lambda: linear(5), 4, {}, "4 ranks cannot share a batch of 5: one has no rows"),
        (lambda: linear() + random_tensor(1, 2), 2, {}, "its inputs have batches of different sizes: 5 in dimension 0"),
        (
            lambda: torch.nn.Linear(1, 2)(random_tensor(0).reshape(1)),
            2,
            {},
            "no input has a batch that ranks could share",
        ),
    ],
    ids=["fewer rows", "an empty slice", "two sizes", "no dimension"],
)
def test_why_not_split__batch_that_cannot_be_shared__is_a_sentence(body: Any, ranks: int, declared: Any, said: str):
    why = refusal(body, ranks, **declared)

    assert why is not None
    assert why.reason is UnsupportedReason.BATCH
    assert said in why.detail


def test_why_not_split__only_one_input_has_the_batch__can_be_split():
    assert refusal(lambda: linear() + random_tensor(1, 2), batch={0: 0}) is None


def test_plan_of__memory_that_a_form_adds__is_shared_as_the_result():
    def calling() -> Any:
        sequence, state = torch.exp(random_tensor(3, 4, 6, 3)), random_tensor(3, 1, 6, 2)
        return torch.nn.GRU(3, 2)(sequence, state)[0]

    found = (planned(calling, case=case, forms=("out",), batch={0: 1, 1: 1}) for case in range(64))
    attempt, plan = next(pair for pair in found if any(step.name == "out" for step in pair[0].program.body))

    assert plan.mixes is None
    assert plan.joins[output_refs(attempt.program)[0].index] == Join("rows", 1)


def test_parts_of_body__two_steps_of_an_optimizer__are_forward_passes_and_what_follows_from_gradients():
    def body() -> Any:
        layer = real.nn.Linear(3, 2)
        optimizer = real.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            layer(random_tensor(2, 4, 3)).square().mean().backward()
            optimizer.step()
        return layer(random_tensor(2, 4, 3))

    parts = parts_of_body(record(body, profiles=()).program)

    assert [part.is_forward for part in parts] == [True, False, True, False, True, False]
