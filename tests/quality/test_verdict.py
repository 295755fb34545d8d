"""Whose step it is, alone or accumulated, and which side is wrong by float64."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random, random_tensor, torch
from ci_autotest.alignment.examination import TrialSides
from ci_autotest.alignment.single_step import isolate, pruned
from ci_autotest.alignment.verdict import judge_program, live_of
from ci_autotest.backends.body_function import begun
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.trace import Raised, Trace
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.program.codegen import body_lines, setup_lines
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.values.finding import TOLERATED_BLAMES
from tests.engine import Rules, judged, record, substitute, tried
from tests.faults import mutating, with_backward

TORCH = TorchBackend()


def x(**how):
    return random_tensor(ndim=2, dim0=3, dim1=4, **how)


def chain():
    return torch.exp(torch.sin(x() * 2)).sum(dim=0)


def specs(live) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(s.args[0].shape, s.args[0].strides) for s in live.program.steps if s.op == PLACEHOLDER]


CULPRITS = [
    ("first of a chain", chain, {"mul": lambda a, b: a * b + 1e-2}, "torch.mul", "value", "mul = x * 2"),
    ("middle of a chain", chain, {"sin": lambda v: v.sin() + 1e-2}, "torch.sin", "value", "sin = torch.sin(x)"),
    ("last of a chain", chain, {"sum": lambda v, dim: v.sum(dim) + 1e-2}, "torch.sum", "value", "sum = x.sum(dim=0)"),
    ("gradient in the middle", chain, {"sin": with_backward(real.sin, lambda v, g: g)}, "torch.sin", "gradient",
     "sin = torch.sin(x)"),
    ("gradient of the last", chain, {"sum": with_backward(real.sum, lambda v, g: 2 * g.expand_as(v))}, "torch.sum",
     "gradient", "sum = x.sum(dim=0)"),
    ("shape in the middle", chain, {"sin": lambda v: v.sin()[:1]}, "torch.sin", "shape", "sin = torch.sin(x)"),
    ("grad lost in the middle", chain, {"sin": lambda v: v.sin().detach()}, "torch.sin", "metadata", "sin = torch.sin(x)"),
    ("mutation in the middle", chain, {"sin": mutating(real.sin)}, "torch.sin", "mutation", "sin = torch.sin(x)"),
    ("error in the middle", chain, {"sin": lambda _: 1 / 0}, "torch.sin", "error", "sin = torch.sin(x)"),
    ("indices of a tuple", lambda: torch.max(x() * 2, dim=1)[1] * 3,
     {"max": lambda v, dim: (v.max(dim).values, v.min(dim).indices)}, "torch.max", "value", "max_1 = max[0]"),
    ("values of a tuple", lambda: torch.exp(x()).split(1)[2] * 2,
     {"split": lambda v, n, **how: [part + 1 for part in v.split(n, **how)]}, "torch.split", "value", "split = x.split(1)"),
    ("a second use", lambda: torch.sin(torch.sin(x()) + 2),
     {"sin": lambda v: v.sin() + (v > 1)}, "torch.sin", "value", "sin = torch.sin(x)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "functions", "operator", "kind", "line"), [r[1:] for r in CULPRITS], ids=[r[0] for r in CULPRITS]
)
def test_judge_program__planted_fault__culprit_is_the_step_alone(body, functions, operator, kind, line):
    found = judged(record(body), substitute(**functions))
    verdict = found.verdict
    assert (verdict.outcome, verdict.operator, verdict.kind, verdict.blame) == (
        "misaligned",
        operator,
        kind,
        "candidate",
    )
    assert not verdict.accumulated
    assert line in body_lines(found.live.program)
    assert len(found.live.program.calls) == 1
    assert found.live.program.steps[verdict.step].op != PLACEHOLDER


@pytest.mark.parametrize("functions", [row[2] for row in CULPRITS], ids=[row[0] for row in CULPRITS])
def test_judge_program__culprit_alone__shows_the_same_again(functions):
    body = next(row[1] for row in CULPRITS if row[2] is functions)
    backend = substitute(**functions)
    found = judged(record(body), backend)
    again = judge_program(found.live, TrialSides(backend, TORCH, Rules())).verdict
    assert (again.outcome, again.operator, again.kind, again.blame) == (
        "misaligned", found.verdict.operator, found.verdict.kind, found.verdict.blame,
    )  # fmt: skip


def test_judge_program__small_errors_that_add_up__are_accumulated():
    def body():
        value = x(requires_grad=False)
        for _ in range(4):
            value = value + 0.25
        return value

    verdict = tried(body, substitute(add=lambda a, b: a + b + 0.6e-5))
    assert (verdict.outcome, verdict.accumulated, verdict.operator) == ("misaligned", True, "torch.add")


@pytest.mark.parametrize(
    ("functions", "operator"),
    [
        pytest.param({"exp": lambda _: 1 / 0, "sin": lambda v: v.sin() + 1}, "torch.sin", id="a value before an error"),
        pytest.param({"exp": lambda v: v.exp() + 1, "sin": lambda v: v.sin() + 1}, "torch.sin", id="two values"),
    ],
)
def test_judge_program__two_faults__first_in_order_is_the_finding(functions, operator):
    assert tried(chain, substitute(**functions)).operator == operator


def test_judge_program__not_implemented__is_unsupported():
    def refuse(_):
        message = "no exp here"
        raise NotImplementedError(message)

    verdict = tried(chain, substitute(exp=refuse))
    assert (verdict.outcome, verdict.oracle.partition(" (")[0]) == ("unsupported", "NotImplementedError: no exp here")


def test_judge_program__nothing_replaced__is_unsupported():
    verdict = tried(chain, substitute(tanh=real.tanh))
    assert verdict.outcome == "unsupported"
    assert verdict.oracle.startswith("no call was replaced: torch.tanh did not occur; operators called: torch.exp")


# The oracle.


def opinion(body, candidate, reference=TORCH, rules=Rules(), **how):  # noqa: B008 - frozen
    verdict = judge_program(live_of(record(body, **how)), TrialSides(candidate, reference, rules)).verdict
    return verdict.outcome, verdict.blame


def exp():
    return torch.exp(x())


def off(amount):
    return substitute(exp=lambda v: v.exp() + amount)


def summed(order):
    return substitute(sum=lambda v: sum(v[i] for i in order(range(len(v)))))


def cancelling():
    return torch.sum(torch.tensor([1e8, 1.0, -1e8, 3.0]) * random_tensor(ndim=1, dim0=1, low=1, high=1.5))


@pytest.mark.parametrize(
    ("body", "candidate", "reference", "expected"),
    [
        pytest.param(exp, off(1e-3), TORCH, ("misaligned", "candidate"), id="candidate"),
        pytest.param(exp, TORCH, off(1e-3), ("misaligned", "reference"), id="reference"),
        pytest.param(exp, off(1e-3), off(-1e-3), ("misaligned", "both"), id="both"),
        pytest.param(exp, off(0.8e-5), off(-0.8e-5), ("aligned", "ill_conditioned"), id="err to opposite sides"),
        pytest.param(cancelling, summed(reversed), summed(iter), ("aligned", "ill_conditioned"), id="cancellation"),
        pytest.param(
            lambda: x(requires_grad=False).view(torch.int32),
            substitute(view=lambda v, dtype: v.view(dtype) + 1), TORCH, ("misaligned", "unknown"), id="unknown",
        ),
        pytest.param(lambda: torch.exp(x(dtype=torch.float64)), off(1e-3), TORCH, ("misaligned", "candidate"), id="float64"),
        pytest.param(lambda: torch.exp(x(dtype=torch.float16)), off(1e-1), TORCH, ("misaligned", "candidate"), id="half"),
        pytest.param(lambda: x(dtype=int) * 2, substitute(mul=lambda a, b: a * b + 1), TORCH,
                     ("misaligned", "candidate"), id="integers"),
        pytest.param(exp, substitute(exp=with_backward(real.exp, lambda v, g: g)), TORCH, ("misaligned", "candidate"),
                     id="gradient of the candidate"),
        pytest.param(exp, substitute(exp=real.exp), substitute(exp=with_backward(real.exp, lambda v, g: g)),
                     ("misaligned", "reference"), id="gradient of the reference"),
        pytest.param(lambda: torch.exp(x()), substitute(exp=lambda v: v.exp() * real.nan), TORCH,
                     ("misaligned", "candidate"), id="NaN"),
        pytest.param(lambda: torch.nn.Linear(4, 2)(x()),
                     substitute(linear=lambda v, w, b: real.nn.functional.linear(v, w) + 2 * b), TORCH,
                     ("misaligned", "candidate"), id="module"),
        pytest.param(lambda: torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())(x()),
                     substitute(linear=lambda v, w, b: real.nn.functional.linear(v, w) + 2 * b), TORCH,
                     ("misaligned", "candidate"), id="a module of modules"),
        pytest.param(lambda: torch.nn.BatchNorm1d(4)(x()),
                     substitute(batch_norm=lambda v, *more, **how: real.nn.functional.batch_norm(v, *more, **how) + 1),
                     TORCH, ("misaligned", "candidate"), id="module with buffers"),
        pytest.param(lambda: torch.nn.Linear(4, 2).to(torch.float64)(x(dtype=torch.float64)),
                     substitute(linear=lambda v, w, b: real.nn.functional.linear(v, w) + 2 * b), TORCH,
                     ("misaligned", "candidate"), id="module in float64"),
        pytest.param(lambda: torch.softmax(x(), dim=0, dtype=torch.float32),
                     substitute(softmax=lambda v, dim, dtype: v.softmax(0) + 1e-3), TORCH,
                     ("misaligned", "candidate"), id="dtype argument"),
        pytest.param(lambda: torch.exp(x(dtype=complex, low=-1, high=1)), substitute(exp=lambda v: v.exp().conj() * 1),
                     TORCH, ("misaligned", "candidate"), id="complex"),
    ],
)  # fmt: skip
def test_judge__each_blame__is_told(body, candidate, reference, expected):
    assert opinion(body, candidate, reference) == expected


def test_judge__case__says_how_far_and_what_is_right():
    verdict = tried(lambda: torch.exp(x(low=0, high=1)), off(1e-3))
    assert "times farther from the exact result than the reference" in verdict.oracle
    first = verdict.misalignment.difference.first_pair[1]
    assert abs(float.fromhex(verdict.oracle_value) - float.fromhex(first)) < 1e-6


def test_judge__gross_error_in_an_ill_conditioned_case__is_not_excused():
    found = opinion(cancelling, substitute(sum=lambda v: v.sum() + 1e6), summed(iter))
    assert found[0] == "misaligned"
    assert found[1] not in TOLERATED_BLAMES


def test_judge__by_definition__oracle_is_not_asked():
    verdict = tried(exp, substitute(exp=lambda v: v.exp()[:1]))
    assert verdict.oracle == "the reference defines this, so float64 is not asked"


# One step as a program of its own.


def alone(body, number: int):
    live = live_of(record(body))
    return pruned(isolate(live, live.program.calls[number][0], TORCH))


def in_place():
    value = x(requires_grad=False) * 1
    value.mul_(2)
    value[0] = 7
    return value


def batch_norm_twice():
    module = torch.nn.BatchNorm1d(4)
    value = x()
    trained = module(value)
    module.eval()
    return trained, module(value)


def test_isolate__again_and_again__gives_a_module_its_mode_once():
    live = live_of(record(batch_norm_twice))
    for _ in range(3):
        number = next(i for i, (_, step) in enumerate(live.program.calls) if step.target == "eval")
        live = isolate(live, live.program.calls[number][0], TORCH)
    assert setup_lines(live.program).count("module.train(True)") == 1


def test_isolate__in_place_step__writes_to_a_copy():
    assert body_lines(alone(in_place, 1).program) == ["copy = x.clone()", "mul = copy.mul_(2)"]


def test_isolate__item_set__returns_what_was_written():
    live = alone(in_place, 2)
    assert body_lines(live.program) == ["copy = x.clone()", "copy[0] = 7"]
    assert len(live.program.body[-1].args) == 1


def test_isolate__input__is_as_it_was_just_before():
    live = live_of(record(in_place))
    before = live.sources["t0"]
    assert real.equal(alone(in_place, 1).sources["t0"], before)
    assert real.equal(alone(in_place, 2).sources["t0"], before * 2)


@pytest.mark.parametrize(
    ("body", "spec"),
    [
        pytest.param(lambda: torch.exp(x().t()), ((4, 3), (1, 4)), id="transposed"),
        pytest.param(lambda: torch.exp(x()[:, ::2]), ((3, 2), (4, 2)), id="sliced"),
        pytest.param(lambda: torch.exp(x()[:, :1].expand(3, 5)), ((3, 5), (4, 0)), id="expanded"),
        pytest.param(lambda: torch.exp(x() * 1), ((3, 4), (4, 1)), id="contiguous"),
        pytest.param(lambda: torch.exp(x()[:0]), ((0, 4), (4, 1)), id="empty"),
        pytest.param(lambda: torch.exp(x().sum()), ((), ()), id="0-dim"),
    ],
)
def test_isolate__strided_input__keeps_its_strides(body, spec):
    live = alone(body, -1)
    assert specs(live) == [spec]
    assert real.equal(TORCH.run(live.program, live.sources).values[0], record(body).trace.values[-3])


def test_judge_program__wrong_for_a_strided_input_only__culprit_is_alone():
    backend = substitute(exp=lambda v: v.exp() + (not v.is_contiguous()))
    found = judged(record(lambda: torch.exp(x().t())), backend)
    assert (found.verdict.operator, found.verdict.accumulated) == ("torch.exp", False)
    assert specs(found.live) == [((4, 3), (1, 4))]


def test_judge_program__wrong_in_place__culprit_is_alone():
    found = judged(record(in_place), substitute(mul=lambda a, b: a * b + (b == 2)))
    assert (found.verdict.operator, found.verdict.accumulated) == ("torch.mul", False)
    assert body_lines(found.live.program) == ["copy = x.clone()", "mul = copy.mul_(2)"]


def test_judge_program__wrong_set_item__culprit_is_alone():
    def put(value, index, other):
        value[index] = other + 1

    backend = substitute()
    backend.functions = {"torch.Tensor.__setitem__": put}
    verdict = tried(in_place, backend)
    assert (verdict.outcome, verdict.operator, verdict.accumulated) == ("misaligned", "torch.Tensor.__setitem__", False)


def test_judge_program__wrong_module_with_state__culprit_keeps_its_state():
    backend = substitute(linear=lambda v, w, b: real.nn.functional.linear(v, w, b) + w.sum())
    found = judged(record(lambda: torch.exp(torch.nn.Linear(4, 2)(x()))), backend)
    assert (found.verdict.operator, found.verdict.accumulated) == ("torch.nn.functional.linear", False)
    assert setup_lines(found.live.program)[0] == "module = torch.nn.Linear(4, 2)"
    assert [step.name for step in found.live.program.setup].count("weight") == 1


def test_judge_program__wrong_in_eval_only__culprit_is_alone():
    function = real.nn.functional.batch_norm

    def wrong(value, mean, var, training, **how):
        return function(value, mean, var, training=training, **how) + (not training)

    found = judged(record(batch_norm_twice), substitute(batch_norm=wrong))
    assert (found.verdict.operator, found.verdict.kind) == ("torch.nn.functional.batch_norm", "value")
    assert not found.verdict.accumulated


def test_isolate__module_that_was_trained__has_the_state_of_just_before():
    live = live_of(record(batch_norm_twice))
    whole = TORCH.run(live.program, live.sources)
    index = live.program.calls[-1][0]
    single = pruned(isolate(live, index, TORCH))
    found = TORCH.run(single.program, single.sources)
    assert real.equal(found.values[single.program.calls[-1][0]], whole.values[index])


def test_pruned__unused_modules_and_tensors__are_dropped():
    def body():
        unused = torch.nn.Linear(9, 9)
        other = x()
        unused.eval()
        return torch.exp(x()), other

    single = alone(lambda: body()[0], 0)
    assert single.program.setup == ()
    assert set(single.sources) == {step.target for step in single.program.steps if step.op == PLACEHOLDER}
    assert len(single.sources) == 1


def test_pruned__in_place_write_to_what_is_needed__is_kept():
    live = pruned(live_of(record(in_place)))
    assert body_lines(live.program) == body_lines(record(in_place).program)


def test_pruned__in_place_write_through_a_view__is_kept():
    def body():
        value = x(requires_grad=False) * 1
        value[0].mul_(5)
        return value

    live = live_of(record(body))
    small = pruned(live)
    whole, found = (TORCH.run(item.program, item.sources).values for item in (live, small))
    assert real.equal(found[small.program.body[-1].args[0].index], whole[live.program.body[-1].args[0].index])


def test_isolate__shape_of_the_reference__is_a_constant():
    def body():
        value = x()
        return torch.exp(value).reshape(value.shape[1], value.shape[0])

    found = judged(record(body), substitute(reshape=lambda v, *shape: v.reshape(*shape) + 1))
    assert (found.verdict.operator, found.verdict.accumulated) == ("torch.reshape", False)
    assert body_lines(found.live.program) == ["reshape = x.reshape(4, 3)"]


def test_isolate__size_that_was_drawn__is_a_constant():
    def body():
        k = random(2, 5).to(int)
        return torch.exp(random_tensor(ndim=2, dim1=k)).reshape(-1, k)

    assert judged(record(body), substitute(reshape=lambda v, *s: v.reshape(*s) + 1)).verdict.operator == "torch.reshape"


class WithoutTheModule(TorchBackend):
    """A candidate that has no such module: it ran nothing, and says why."""

    def run(self, program, sources, *, snapshots=False, copied=()):
        trace = begun(program, snapshots=snapshots)
        trace.untested = Unsupported(UnsupportedReason.NO_COUNTERPART, "it has no nn.Linear")
        return trace


def test_judged__a_program_with_a_module_that_the_candidate_has_not__is_unsupported():
    attempt = record(lambda: torch.nn.Linear(3, 2)(torch.ones(4, 3)))
    verdict = judged(attempt, WithoutTheModule()).verdict
    assert (verdict.outcome, verdict.oracle) == ("unsupported", "it has no nn.Linear")


class Silent(TorchBackend):
    """Shows nothing of what it is given, and says why."""

    def run(self, program, sources, **_):
        trace = Trace()
        trace.values = [None] * len(program.steps)
        trace.untested = Unsupported(UnsupportedReason.NO_COUNTERPART, "it has no such module")
        return trace


def test_judge_program__candidate_that_shows_nothing_of_a_module__is_unsupported():
    found = judged(record(lambda: torch.nn.Linear(4, 2)(x())), Silent()).verdict
    assert (found.outcome, found.oracle) == ("unsupported", "it has no such module")


def no_kernel(*_):
    message = "Could not run 'aten::sin_backward' with arguments from the 'npu' backend. This could be because"
    raise NotImplementedError(message)


class WithoutTheKernel(TorchBackend):
    """A device that has no kernel of a gradient."""

    def backward(self, program, trace, cotangents):
        trace.backward_failure = Raised("NotImplementedError", "Could not run it")
        detail = "device 'npu' has no kernel of aten::sin_backward"
        trace.backward_lacking = Unsupported(UnsupportedReason.NO_KERNEL, detail)


def test_judge_program__gradient_of_the_users_says_that_there_is_no_kernel__is_an_error():
    verdict = tried(chain, substitute(sin=with_backward(real.sin, no_kernel)))
    assert (verdict.outcome, verdict.kind) == ("misaligned", "error")


def test_judge_program__gradient_has_no_kernel__is_unsupported_with_its_name():
    verdict = tried(chain, WithoutTheKernel())
    assert verdict.outcome == "unsupported"
    assert verdict.oracle == (
        "backward pass of torch.mul, torch.sin, torch.exp, torch.sum: device 'npu' has no kernel of aten::sin_backward"
    )


def test_judge_program__gradient_has_no_kernel_and_the_value_is_wrong__is_misaligned():
    wrong = with_backward(lambda v: real.sin(v) + 1e-2, no_kernel)
    verdict = tried(chain, substitute(sin=wrong))
    assert (verdict.outcome, verdict.operator, verdict.kind) == ("misaligned", "torch.sin", "value")


def test_judge_program__gradient_says_that_it_was_not_written__is_an_error():
    def unwritten(*_):
        message = "You must implement either the backward or vjp method"
        raise NotImplementedError(message)

    verdict = tried(chain, substitute(sin=with_backward(real.sin, unwritten)))
    assert (verdict.outcome, verdict.kind) == ("misaligned", "error")
