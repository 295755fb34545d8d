"""Autograd's semantics as things that are compared, each with a candidate that breaks it and is found."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender, judge_refusal, refusal_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.protocol import Backend
from ci_autotest.report.finding_message import About, finding_of
from ci_autotest.values.finding import Finding, counts_against
from tests.engine import RULES, differences, judged, record, substitute, tried

BACKEND = TorchBackend()


def worked_example() -> Any:
    x = torch.ones(2, 2)
    w1, w2, w3 = (torch.full((), value, requires_grad=True) for value in (2.0, 3.0, 4.0))
    l1 = x * w1
    l2 = l1 + w2
    l3 = l1 * w3
    l4 = l2 * l3
    loss = l4.mean()
    l1.retain_grad()
    l4.retain_grad()
    loss.backward()
    return loss, w1.grad, w2.grad, w3.grad, l1.grad, l4.grad


def printed_example() -> Any:
    """The article's example as it stands: it prints what it goes through."""
    x = torch.ones(2, 2)
    w1, w2, w3 = (torch.full((), value, requires_grad=True) for value in (2.0, 3.0, 4.0))
    l1 = x * w1
    l2 = l1 + w2
    l3 = l1 * w3
    l4 = l2 * l3
    loss = l4.mean()
    for value in (x, w1, l1, l2, l3, l4, loss):
        print(value.grad_fn, value.is_leaf, value)  # noqa: T201 - what is under test
    print(l1.grad_fn.name(), f"{loss} {loss:.1f}", l1.backward)  # noqa: T201 - what is under test
    l1.retain_grad()
    l4.retain_grad()
    loss.backward()
    print(w1.grad, l1.grad, [loss, w1.grad])  # noqa: T201 - what is under test
    return loss, w1.grad, w2.grad, w3.grad, l1.grad, l4.grad


def test_printed_example__is_recorded_as_the_same_steps(capsys: pytest.CaptureFixture[str]):
    attempt = record(printed_example)
    plain = record(worked_example)
    said = capsys.readouterr().out
    assert "None True tensor([[1., 1.],\n        [1., 1.]])" in said
    assert "<MulBackward0> False tensor([[2., 2.],\n        [2., 2.]], grad_fn=<MulBackward0>)" in said
    assert "MulBackward0 40.0 40.0 <recorded method backward of tensor([[2., 2.]," in said
    found = [attempt.trace.values[ref.index].flatten()[0].item() for ref in attempt.program.body[-1].args[:6]]
    assert found == [40.0, 28.0, 8.0, 10.0, 7.0, 0.25]
    steps = [step.target for step in attempt.program.steps if step.target != "builtins.getattr"]  # `.grad` is a step.
    assert steps == [step.target for step in plain.program.steps if step.target != "builtins.getattr"]
    assert judged(attempt, BACKEND).verdict.outcome == "aligned"


def test_recorded_module__is_printed_as_what_it_is(capsys: pytest.CaptureFixture[str]):
    def body() -> Any:
        module = torch.nn.Sequential(torch.nn.Linear(3, 2))
        print(module, module[0], module.eval)  # noqa: T201 - what is under test
        return module(random_tensor(2, 4, 3))

    record(body)
    said = capsys.readouterr().out
    assert "<recorded Linear(in_features=3, out_features=2, bias=True)>" in said
    assert "<recorded method eval of <recorded Sequential(" in said


def test_worked_example__loss_and_gradients__are_those_of_the_textbook():
    attempt = record(worked_example)
    trace = BACKEND.run(attempt.program, attempt.sources)
    found = [trace.values[ref.index] for ref in attempt.program.body[-1].args[:6]]
    assert [value.flatten()[0].item() for value in found] == [40.0, 28.0, 8.0, 10.0, 7.0, 0.25]
    assert [set(value.flatten().tolist()) for value in found[4:]] == [{7.0}, {0.25}]
    assert judged(record(worked_example), BACKEND).verdict.outcome == "aligned"


def test_worked_example__mean_with_a_wrong_gradient__is_found():
    def mean(x: Any) -> Any:
        return real.sum(x * 1.0) / x.numel() + 0 * x.detach().sum()

    def tripled(x: Any) -> Any:
        return x.detach().mean() + (3 * (x - x.detach())).mean()

    assert judged(record(worked_example), substitute(mean=mean)).verdict.outcome == "aligned"
    verdict = judged(record(worked_example), substitute(mean=tripled)).verdict
    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")


def test_automatic_pass__of_the_same_graph__has_the_same_gradients():
    """The gradients that are taken without being asked for are those that ``retain_grad`` and ``backward`` give."""

    def body() -> Any:
        x, w1, w2, w3 = torch.ones(2, 2), *(torch.full((), v, requires_grad=True) for v in (2.0, 3.0, 4.0))
        l1 = x * w1
        return ((l1 + w2) * (l1 * w3)).mean()

    attempt = record(body)
    trace = BACKEND.run(attempt.program, attempt.sources)
    BACKEND.backward(attempt.program, trace, {0: real.ones(())})
    by_index = [value.flatten()[0].item() for _, value in sorted(trace.gradients.items())]
    assert by_index[:4] == [28.0, 8.0, 10.0, 7.0]
    assert 0.25 in by_index


# Each row: a body, the operator that a candidate answers wrongly, the kind that is found.


def identity_chain() -> Any:
    x = random_tensor(2, 3, 4)
    return torch.exp(x) * 2


def leaf_and_not() -> Any:
    return torch.exp(random_tensor(2, 3, 4))


def unused_input() -> Any:
    x, y = random_tensor(1, 3), random_tensor(1, 3)
    return torch.exp(x) + 0 * torch.sin(y)


def version_read() -> Any:
    x = random_tensor(2, 3, 4).clone()
    before = x._version
    torch.exp_(x)
    return x * (x._version - before)


def shared_data() -> Any:
    x = random_tensor(2, 3, 4)
    y = x.detach()
    z = x.data
    z.mul_(2)
    return torch.exp(y) + torch.exp(x)


def written_view() -> Any:
    x = random_tensor(2, 3, 4).clone()
    row = x[1]
    torch.exp_(row)
    return x * 1


def retained() -> Any:
    x = random_tensor(1, 4)
    y = torch.exp(x)
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad


def twice_kept() -> Any:
    x = random_tensor(1, 4)
    loss = torch.exp(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return x.grad


def penalty() -> Any:
    x = random_tensor(1, 4)
    (gradient,) = torch.autograd.grad(torch.exp(x).sum(), x, create_graph=True)
    return (gradient**2).sum()


def penalty_by_position() -> Any:
    x = random_tensor(1, 4)
    weight = torch.ones(4)
    (gradient,) = torch.autograd.grad(torch.exp(x), x, weight, True, True)
    return (gradient**2).sum()


def none_gradient() -> Any:
    x, y = random_tensor(1, 4), random_tensor(1, 4)
    used, unused = torch.autograd.grad(torch.exp(x).sum(), (x, y), allow_unused=True)
    assert unused is None
    return used


def parameter_gradient() -> Any:
    layer = torch.nn.Linear(3, 2)
    torch.exp(layer(random_tensor(2, 4, 3))).sum().backward()
    return layer.weight.grad


def detaching(x: Any) -> Any:
    return real.Tensor.exp(x.detach())


def requiring(x: Any) -> Any:
    return real.Tensor.exp(x.detach()).requires_grad_()


class _Halved(real.autograd.Function):
    """The right value with half the gradient, twice differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return real.Tensor.exp(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * real.Tensor.exp(x) / 2


class _NotTwice(real.autograd.Function):
    """The right gradient, which is itself not differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return real.Tensor.exp(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * real.Tensor.exp(x).detach()


def out_of_place(x: Any) -> Any:
    return real.Tensor.exp(x)


BROKEN = {
    "requires_grad is lost": (identity_chain, detaching, {"metadata", "gradient"}),
    "a leaf where none should be": (leaf_and_not, requiring, {"metadata", "gradient"}),
    "gradient of retain_grad": (retained, _Halved.apply, {"gradient"}),
    "gradient after two passes": (twice_kept, _Halved.apply, {"gradient"}),
    "gradient of a gradient": (penalty, _NotTwice.apply, {"metadata"}),
    "gradient of a gradient, by position": (penalty_by_position, _NotTwice.apply, {"metadata"}),
    "gradient asked for by name": (none_gradient, _Halved.apply, {"gradient"}),
    "gradient of a parameter": (parameter_gradient, _Halved.apply, {"gradient"}),
    "gradient of an input": (unused_input, _Halved.apply, {"gradient"}),
    "value that shares memory": (shared_data, lambda x: real.Tensor.exp(x.clone()) + 1, {"value"}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_semantics__a_right_candidate__is_aligned(name: str):
    body, _, _ = BROKEN[name]
    assert tried(body, substitute(exp=out_of_place)).outcome == "aligned"
    assert tried(body, BACKEND).outcome == "aligned"


@pytest.mark.parametrize("name", BROKEN)
def test_semantics__a_candidate_that_breaks_it__is_found(name: str):
    body, broken, kinds = BROKEN[name]
    verdict = tried(body, substitute(exp=broken))
    assert (verdict.outcome, verdict.kind in kinds) == ("misaligned", True), verdict
    assert (verdict.operator, verdict.blame) == ("torch.exp", "candidate"), verdict


@pytest.mark.parametrize("body", [version_read, written_view, shared_data])
def test_semantics__versions_views_and_shared_data__replay(body: Any):
    assert tried(body, BACKEND).outcome == "aligned"


def test_versions__a_write_that_is_not_counted__is_found():
    def silent(x: Any) -> Any:
        x.data.exp_()
        return x

    found = differences(record(version_read, auto_backward=False), InPlace(silent))
    assert any(item.what.startswith("value of _version") for item in found), found


class InPlace(Backend):
    """A candidate that answers one operator by a function that writes to its argument itself."""

    def __init__(self, function: Any, target: str = "torch.exp_") -> None:
        self._torch, self._function, self.on_step = TorchBackend(), function, None
        self._torch.steps._functions[target] = function

    def run(self, program: Any, sources: Any, *, snapshots: bool = False, copied: Any = ()) -> Any:
        return self._torch.run(program, sources, snapshots=snapshots)

    def backward(self, program: Any, trace: Any, cotangents: Any) -> None:
        self._torch.backward(program, trace, cotangents)


# The three misuses: the reference raises, and a candidate that does not is lenient; it fails a run whose author said so.


def overwritten() -> Any:
    x = random_tensor(2, 3, 4)
    y = torch.exp(x)
    y.mul_(2)
    return y


def leaf_written_to() -> Any:
    x = random_tensor(1, 4)
    torch.exp_(x)
    return x * 2


def view_of_a_leaf_written_to() -> Any:
    x = random_tensor(1, 4)
    torch.exp_(x[1:])
    return x * 2


def leaf_moved_into_the_graph() -> Any:
    x, least = random_tensor(1, 4), random_tensor(1, 4)
    y = x * 2
    x.requires_grad_(False)
    torch.clamp_(x, least)
    y.sum().backward()
    return y


def finding(verdict: Any) -> Finding:
    return finding_of(verdict, About("kernels", "a.py::test", "test", 0, 0))


def saved_input(x: Any) -> Any:
    """Exp that keeps its input: what overwrites its output goes unnoticed."""
    return _Kept.apply(x)


class _Kept(real.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return real.Tensor.exp(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * real.Tensor.exp(x)


def test_misuse__value_needed_for_the_gradient_is_overwritten__is_leniency():
    verdict = tried(overwritten, substitute(exp=saved_input))
    assert (verdict.outcome, verdict.kind, verdict.operator) == ("misaligned", "leniency", "torch.mul")
    assert not verdict.is_of_a_rejected_attempt
    assert not counts_against(finding(verdict))
    assert "modified by an inplace operation" in finding(verdict).detail


def test_misuse__both_sides_refuse__is_aligned():
    assert tried(overwritten, BACKEND).outcome == "aligned"


@pytest.mark.parametrize("body", [leaf_written_to, view_of_a_leaf_written_to])
def test_misuse__leaf_is_written_to__is_leniency(body: Any):
    def silent(x: Any) -> Any:
        x.data.exp_()
        return x

    attempt = record(body)
    assert attempt.refused is not None
    assert judge_refusal(attempt, Contender(BACKEND, RULES)).verdict.outcome == "aligned"
    found = judge_refusal(attempt, Contender(InPlace(silent), RULES))
    assert found is not None
    assert (found.verdict.kind, found.verdict.is_of_a_rejected_attempt) == ("leniency", True)
    assert not counts_against(finding(found.verdict))


def test_misuse__leaf_is_moved_into_the_graph__is_leniency():
    def silent(x: Any, least: Any) -> Any:
        x.data.clamp_(least.data)
        return x

    attempt = record(leaf_moved_into_the_graph)
    assert attempt.refused is not None
    assert "leaf variable has been moved into the graph interior" in refusal_of(attempt)
    assert judge_refusal(attempt, Contender(BACKEND, RULES)).verdict.outcome == "aligned"
    found = judge_refusal(attempt, Contender(InPlace(silent, "torch.clamp_"), RULES))
    assert found is not None
    assert not counts_against(finding(found.verdict))


def test_leniency__of_another_refusal__is_reported_and_fails_nothing():
    def mismatched() -> Any:
        return torch.matmul(random_tensor(2, 2, 3), random_tensor(2, 2, 3))

    attempt = record(mismatched)
    found = judge_refusal(attempt, Contender(substitute(matmul=lambda a, b: a), RULES))
    assert found is not None
    assert not counts_against(finding(found.verdict))


def backward_twice() -> Any:
    loss = (torch.exp(random_tensor(1, 4)) ** 2).sum()
    loss.backward()
    loss.backward()
    return loss


def test_backward_twice__without_the_graph__is_refused_by_both_sides():
    attempt = record(backward_twice)
    assert attempt.refused is not None
    assert attempt.refused.target == "backward"
    assert "Trying to backward through the graph a second time" in refusal_of(attempt)
    assert judge_refusal(attempt, Contender(BACKEND, RULES)).verdict.outcome == "aligned"


def second_of_log_softmax():
    x = random_tensor(ndim=2)
    score = torch.nn.functional.log_softmax(x, 1) * x
    return torch.autograd.grad(score.sum(), x, create_graph=True)


def log_softmax(x, dim, _stacklevel=3, dtype=None):
    return x - x.logsumexp(dim, keepdim=True)


class OffAtTheSecond(real.autograd.Function):
    """A logarithm of softmax whose gradient is right and whose second derivative is a tenth too large."""

    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        result = log_softmax(x, dim)
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        x, _ = ctx.saved_tensors
        with real.enable_grad():
            powers = real.softmax(x * 1.1 - x.detach() * 0.1, ctx.dim)
        return gradient - powers * gradient.sum(ctx.dim, keepdim=True), None


@pytest.mark.parametrize(
    ("kernel", "outcome"),
    [(log_softmax, "aligned"), (lambda x, dim, _stacklevel=3, dtype=None: OffAtTheSecond.apply(x, dim), "misaligned")],
    ids=["another formula", "second derivative off"],
)
def test_judge__second_derivative__goes_through_a_result_or_around_it_and_must_be_right(kernel, outcome):
    verdict = tried(second_of_log_softmax, substitute(**{"nn.functional.log_softmax": kernel}), case=1)
    assert verdict.outcome == outcome


def view_without_gradients():
    y = torch.relu(random_tensor(2, 3, 4))
    with real.no_grad():
        y[0].argmax()
    return y.sum()


def inference_of_a_view():
    layer, x = torch.nn.Linear(6, 2), random_tensor(1, 12)
    with real.no_grad():
        return torch.relu(layer(x.view(2, 6)))


@pytest.mark.parametrize("body", [view_without_gradients, inference_of_a_view])
def test_judge__view_that_is_taken_without_gradients__is_read_and_another_fault_found(body):
    assert tried(body, substitute(relu=lambda x: real.relu(x) * (1 + 1e-7))).outcome == "aligned"
    found = tried(body, substitute(relu=lambda x: real.relu(x) + 0.1))
    assert (found.kind, found.operator, found.blame) == ("value", "torch.nn.functional.relu", "candidate")
