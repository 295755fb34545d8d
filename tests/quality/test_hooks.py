"""Hooks on gradients: their values, their order, what they keep, and what cannot be recorded of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.errors import AuthorError, ProgramError
from ci_autotest.program.check import check_program
from ci_autotest.program.codegen import body_lines
from ci_autotest.program.ir import UNHOOKED, Program, Ref
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from tests.engine import differences, judged, record, substitute
from tests.quality import right_kernels as right
from tests.quality.large_inputs import Scaled

BACKEND = TorchBackend()


def scaled() -> Any:
    x = random_tensor(1, 4)
    y = torch.exp(x)
    y.register_hook(lambda gradient: gradient * 3)
    return y


def two_in_order() -> Any:
    x = random_tensor(1, 4)
    y = torch.exp(x)
    y.register_hook(lambda gradient: gradient + 1)
    x.register_hook(lambda gradient: gradient * 2)
    y.register_hook(lambda gradient: gradient * 5)
    return y.sin()


def of_a_module() -> Any:
    layer = torch.nn.Linear(4, 2)
    y = torch.exp(layer(random_tensor(2, 3, 4)))
    y.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    return y


def kept() -> Any:
    x, seen = random_tensor(1, 4), []
    y = torch.exp(x)
    y.register_hook(seen.append)
    y.register_hook(lambda gradient: seen.append(gradient * 2))
    (y * y).sum().backward()
    return seen[0] + seen[1]


def outer() -> Any:
    x, scale = random_tensor(1, 4), random_tensor(1, 4, requires_grad=False)
    y = torch.exp(x)
    y.register_hook(lambda gradient: scale * real.clamp(gradient, min=0.0))
    return y


def removed() -> Any:
    y = torch.exp(random_tensor(1, 4))
    handle = y.register_hook(lambda gradient: gradient * 3)
    y.register_hook(lambda gradient: gradient + 1)
    handle.remove()
    return y


def held_for_a_block() -> Any:
    y = torch.exp(random_tensor(1, 4))
    with y.register_hook(lambda gradient: gradient * 3):
        y.sum().backward(retain_graph=True)
    y.sum().backward()
    return y


class Halved(real.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return real.Tensor.sin(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * real.Tensor.cos(ctx.saved_tensors[0]) / 2


@pytest.mark.parametrize("body", [scaled, two_in_order, of_a_module, kept, outer, removed, held_for_a_block])
def test_hook__replayed__is_aligned_and_saved(body: Any):
    attempt = record(body)
    recording = to_recording(live_of(attempt))
    assert decode(encode_program(recording), encode_tensors(recording)) == recording
    assert judged(attempt, BACKEND).verdict.outcome == "aligned"
    assert differences(record(body), BACKEND) == []


def test_hook__scaled_gradient__is_what_plain_torch_gives():
    attempt = record(scaled)
    trace = BACKEND.run(attempt.program, attempt.sources)
    BACKEND.backward(attempt.program, trace, attempt.cotangents)
    x = attempt.sources["t0"].clone().requires_grad_()
    y = real.exp(x)
    y.register_hook(lambda gradient: gradient * 3)
    y.backward(attempt.cotangents[0])
    assert real.equal(trace.gradients[0], x.grad)


def test_hook__two_and_a_leaf__are_called_in_torchs_order():
    attempt = record(two_in_order)
    trace = BACKEND.run(attempt.program, attempt.sources)
    BACKEND.backward(attempt.program, trace, attempt.cotangents)
    places = [trace.values[i] for i, step in enumerate(attempt.program.steps) if step.target == "register_hook"]
    assert places == [(1,), (3,), (2,)]


def test_hook__gradient_that_is_kept__is_the_one_of_the_pass():
    attempt = record(kept)
    trace = BACKEND.run(attempt.program, attempt.sources)
    x = attempt.sources["t0"]
    output = trace.values[attempt.program.body[-1].args[0].index]
    assert real.allclose(output, 3 * 2 * x.exp())


def test_hook__operator_below_with_another_gradient__is_found():
    verdict = judged(record(two_in_order), substitute(sin=Halved.apply)).verdict
    assert (verdict.outcome, verdict.operator) == ("misaligned", "torch.sin")


def test_hook__that_another_side_calls_twice__is_found():
    def doubled(x: Any) -> Any:
        x.register_hook(lambda _: None)
        return real.Tensor.sin(x)

    assert judged(record(two_in_order), substitute(sin=doubled)).verdict.outcome == "aligned"
    attempt = record(two_in_order)
    reference = BACKEND.run(attempt.program, attempt.sources)
    BACKEND.backward(attempt.program, reference, attempt.cotangents)
    again = BACKEND.run(attempt.program, attempt.sources)
    assert [reference.values[i] for i in range(len(attempt.program.steps) - 1)][2] is not None
    assert all(again.values[i] is None for i, step in enumerate(attempt.program.steps) if step.modes == ("hook",))


def test_hook__printed__is_a_function_of_its_own():
    assert body_lines(record(scaled).program) == [
        "exp = torch.exp(x)", "def hook(gradient):", "    mul = gradient * 3", "    return mul", "exp.register_hook(hook)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("hook", "says"),
    [
        (lambda g: g * real.ones(4), "a hook makes a tensor or a module with plain torch. Make it before the hook"),
        (lambda g: 3, "a hook returns int. Return a recorded tensor, or nothing to keep the gradient."),
        (lambda g: g.undefined, "the body raised AttributeError: torch.Tensor has no attribute 'undefined'"),
    ],
)  # fmt: skip
def test_hook__that_cannot_be_recorded__says_what_to_write(hook: Any, says: str):
    def body() -> Any:
        x = random_tensor(1, 4)
        x.register_hook(hook)
        return x * 2

    with pytest.raises(AuthorError) as refused:
        record(body)
    assert says in str(refused.value)


def branching() -> Any:
    y = torch.exp(random_tensor(1, 4))
    y.register_hook(lambda gradient: gradient * 2 if gradient.sum() > 0 else gradient * 3)
    return y


def clipped() -> Any:
    y = torch.exp(random_tensor(1, 4))
    y.register_hook(lambda gradient: gradient * (0.1 / max(0.1, gradient.norm().item())))
    z = torch.sin(y)
    z.register_hook(lambda gradient: gradient if real.allclose(gradient, gradient * 2) else gradient * 0.5)
    return z


def checked() -> Any:
    y = torch.exp(random_tensor(1, 4))

    def check(gradient: Any) -> None:
        assert float(gradient.sum()) == -12.0, gradient

    y.register_hook(check)
    (y * -3).sum().backward(retain_graph=True)
    return y * 2


class Guarded(real.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        found = gradient * torch.cos(ctx.saved_tensors[0])
        return -found if bool((gradient.abs() > 2).any()) else found


def guarded() -> Any:
    return Guarded.apply(random_tensor(1, 4)) * 3


READING = [branching, clipped, guarded]


@pytest.mark.parametrize("body", READING)
def test_hook__that_reads_its_gradient__gives_what_plain_torch_gives(body: Any, monkeypatch: pytest.MonkeyPatch):
    attempt = record(body)
    trace = BACKEND.run(attempt.program, attempt.sources)
    BACKEND.backward(attempt.program, trace, attempt.cotangents)
    x = attempt.sources["t0"].clone().requires_grad_()
    for name in ("random_tensor", "torch"):
        monkeypatch.setitem(globals(), name, (lambda *_: x) if name == "random_tensor" else real)
    body().backward(attempt.cotangents[0])
    assert real.equal(trace.gradients[0], x.grad)
    assert judged(attempt, BACKEND).verdict.outcome == "aligned"
    wrong = substitute(exp=Steep.apply, cos=lambda x: real.Tensor.cos(x) * 2)
    assert judged(attempt, wrong).verdict.blame == "candidate"


class Steep(real.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        found = real.Tensor.exp(x)
        ctx.save_for_backward(found)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.saved_tensors[0] * 2


def test_hook__that_prints_its_gradient__prints_the_one_of_the_reference():
    shown: list[str] = []

    def body() -> Any:
        y = torch.exp(random_tensor(1, 4))
        y.register_hook(lambda gradient: shown.append(f"{gradient} {gradient.mean():.3f}"))
        return y * 7

    given = record(body).cotangents[0] * 7
    assert shown[-1] == f"{given} {given.mean():.3f}"


def test_hook__that_fails_on_ones__is_recorded_with_its_gradient():
    assert judged(record(checked), BACKEND).verdict.outcome == "aligned"


def test_hook__that_fails__and_is_never_called__hinders_nothing():
    def body() -> Any:
        x = random_tensor(1, 4)
        torch.exp(x).register_hook(lambda gradient: gradient.undefined)
        return torch.sin(x)

    assert judged(record(body), BACKEND).verdict.outcome == "aligned"


def test_hook__that_reads_numbers_and_is_called_twice__says_so():
    def body() -> Any:
        y = torch.exp(random_tensor(1, 4))
        y.register_hook(lambda gradient: gradient * gradient.sum().item())
        y.sum().backward(retain_graph=True)
        return y * 2 + torch.autograd.grad(y.sum() * 3, [y])[0]

    with pytest.raises(AuthorError, match="is called more than once in a case: the number would be another"):
        record(body)


def cell() -> Any:
    return torch.nn.LSTMCell(3, 4)(random_tensor(ndim=2, dim1=3))


def doubled_cell_state() -> Any:
    h, c = cell()
    c.register_hook(lambda gradient: gradient * 2)
    return h * c


def clamped_hidden_state() -> Any:
    module = torch.nn.LSTMCell(4, 4)
    h, c = module(random_tensor(ndim=2, dim1=4))
    c.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    h, c = module(torch.sin(h), (c, h))
    h.register_hook(lambda gradient: gradient * 0.5)
    return h * c


def unused_cell_state() -> Any:
    h, c = cell()
    c.register_hook(lambda gradient: gradient * 2)
    return h


def layer() -> Any:
    output, (_, c) = torch.nn.LSTM(3, 4)(random_tensor(ndim=3, dim2=3))
    c.register_hook(lambda gradient: gradient * 2)
    output.register_hook(lambda gradient: gradient * 3)
    return output.sum() + c.sum()


def of_gru_cell() -> Any:
    h = torch.nn.GRUCell(3, 4)(random_tensor(ndim=2, dim1=3))
    h.register_hook(lambda gradient: gradient * 2)
    return h


def of_attention() -> Any:
    q, k, v = (random_tensor(dims=(2, 3, 4)) for _ in range(3))
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    found.register_hook(lambda gradient: gradient * 2)
    return found


def retained_cell_state() -> Any:
    h, c = cell()
    c.retain_grad()
    return h * c


def hook_in_a_pass() -> Any:
    h, c = cell()
    c.register_hook(lambda gradient: gradient * 2)
    (h * c).sum().backward()
    return h * c


def kept_in_a_pass() -> Any:
    h, c = cell()
    seen: list[Any] = []
    c.register_hook(seen.append)
    (h * c).sum().backward(retain_graph=True)
    (h + c).sum().backward()
    return seen[-1]


def retained_in_a_pass() -> Any:
    h, c = cell()
    c.retain_grad()
    (h * c).sum().backward()
    return c.grad


def retained_without_a_use() -> Any:
    h, c = cell()
    c.retain_grad()
    h.sum().backward()
    return c.grad


def leaf_after_a_pass() -> Any:
    x = random_tensor(ndim=2, dim1=3)
    h, c = torch.nn.LSTMCell(3, 4)(x)
    c.register_hook(lambda gradient: gradient * 2)
    (h * c).sum().backward()
    return x.grad


def gradient_in_a_pass() -> Any:
    x = random_tensor(ndim=2, dim1=3)
    h, c = torch.nn.LSTMCell(3, 4)(x)
    return torch.autograd.grad((h * c).sum(), [x, c])[0]


def gradient_without_a_use() -> Any:
    x = random_tensor(ndim=2, dim1=3)
    h, c = torch.nn.LSTMCell(3, 4)(x)
    found, of_cell = torch.autograd.grad(h.sum(), [x, c])
    return found, of_cell


CELLS = [
    doubled_cell_state, clamped_hidden_state, unused_cell_state, retained_cell_state, hook_in_a_pass, kept_in_a_pass,
    retained_in_a_pass, retained_without_a_use, leaf_after_a_pass, gradient_in_a_pass, gradient_without_a_use,
]  # fmt: skip
FUSED = [
    *((body, "lstm_cell", kernel) for body in CELLS for kernel in (right.lstm_cell, right.lstm_cell_of_parts)),
    (layer, "lstm", right.lstm),
    (of_gru_cell, "gru_cell", right.gru_cell),
    (of_attention, "nn.functional.scaled_dot_product_attention", right.attention),
]


@pytest.mark.parametrize(("body", "operator", "kernel"), FUSED)
def test_hook__on_an_output_of_a_fused_kernel__accuses_the_wrong_ones_alone(body: Any, operator: str, kernel: Any):
    """Inside torch's cell the hidden state is computed from the cell state, so a hook there also sees its gradient."""

    def steep(*args: Any, **how: Any) -> Any:
        found = kernel(*args, **how)
        return tuple(map(Scaled.apply, found)) if isinstance(found, tuple) else Scaled.apply(found)

    assert judged(record(body), substitute(**{operator: kernel})).verdict.outcome == "aligned"
    assert judged(record(body), substitute(**{operator: steep})).verdict.blame == "candidate"


class OneForAll(real.autograd.Function):
    """Results of one node, which gives zeros to the inputs that autograd finds unused."""

    @staticmethod
    def forward(ctx: Any, *values: Any) -> Any:
        return tuple(value.clone() for value in values)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        return given


def in_one_node(*tensors: Any) -> Any:
    return OneForAll.apply(*real.broadcast_tensors(*tensors))


def broadcast() -> tuple[Any, ...]:
    x, y = random_tensor(dims=(3, 1)), random_tensor(dims=(1, 4))
    return x, y, *torch.broadcast_tensors(x, y)


def gradient_of_one_output() -> Any:
    x, y, a, _ = broadcast()
    return torch.autograd.grad(a, [x, y], torch.ones_like(a), allow_unused=True)[0]


def gradient_of_one_output_at_the_other() -> Any:
    x, y, a, b = broadcast()
    return torch.autograd.grad(a, [x, y, a, b], torch.ones_like(a), allow_unused=True)[0]


@pytest.mark.parametrize("body", [gradient_of_one_output, gradient_of_one_output_at_the_other])
def test_autograd_grad__of_an_input_that_one_side_does_not_use__is_misaligned(body: Any):
    verdict = judged(record(body), substitute(broadcast_tensors=in_one_node)).verdict
    assert (verdict.outcome, verdict.operator, verdict.blame) == ("misaligned", "torch.broadcast_tensors", "candidate")


def test_hook__in_a_pass_after_which_the_leaf_has_no_gradient__is_found_as_a_gradient():
    def body() -> Any:
        y = torch.cos(random_tensor(1, 4) * 0)
        y.register_hook(lambda gradient: gradient * 3)
        torch.sin(y).sum().backward()
        return y

    verdict = judged(record(body), substitute(sin=Halved.apply)).verdict
    assert (verdict.kind, verdict.operator, verdict.accumulated) == ("gradient", "torch.sin", False)


def test_hook__that_a_wrong_kernel_never_calls__is_found_as_the_gradient_of_the_kernel():
    def apart(*args: Any) -> Any:
        return tuple(map(Scaled.apply, right.lstm_cell_of_parts(*args)))

    verdict = judged(record(unused_cell_state), substitute(lstm_cell=apart)).verdict
    assert (verdict.kind, verdict.operator) == ("gradient", "torch.lstm_cell")


def test_hook__removed__is_called_no_more():
    attempt = record(removed)
    trace = BACKEND.run(attempt.program, attempt.sources)
    BACKEND.backward(attempt.program, trace, attempt.cotangents)
    x = attempt.sources["t0"].clone().requires_grad_()
    y = real.exp(x)
    y.register_hook(lambda gradient: gradient + 1)
    y.backward(attempt.cotangents[0])
    assert real.equal(trace.gradients[0], x.grad)
    assert [trace.values[i] for i, step in enumerate(attempt.program.steps) if step.target == "register_hook"] == [
        None,
        (1,),
    ]


def test_hook__that_a_candidate_does_not_remove__is_found():
    class Keeping(TorchSteps):
        def binding(self, sources: Any) -> Any:
            found = super().binding(sources)
            found.handles = _Deaf()
            return found

    class _Deaf(dict[int, Any]):
        def __getitem__(self, _: int) -> Any:
            class Handle:
                def remove(self) -> None:
                    pass

            return Handle()

    candidate = TorchBackend()
    candidate.steps = Keeping()
    kinds = {item.kind for item in differences(record(removed), candidate)}
    assert kinds == {"value", "shape", "gradient"}


def test_hook__removed__prints_its_handle():
    lines = body_lines(record(removed).program)
    assert (lines[4], lines[-1]) == ("handle = exp.register_hook(hook)", "handle.remove()")


def test_hook__that_keeps_its_gradient__prints_code_that_runs():
    attempt = record(kept)
    scope: dict[str, Any] = {"torch": real, "x": attempt.sources["t0"].clone().requires_grad_()}
    exec("\n".join(body_lines(attempt.program)), scope)  # noqa: S102 - the printed text, which must run
    x = attempt.sources["t0"]
    assert real.allclose(scope["gradient_kept"][-1], 2 * real.exp(x))


def test_check_program__removal_of_no_hook__is_refused():
    program = record(removed).program
    at = next(i for i, step in enumerate(program.body) if step.target == UNHOOKED)
    for wrong in ({"args": (Ref(1),)}, {"modes": ()}):
        body = (*program.body[:at], program.body[at]._replace(**wrong), *program.body[at + 1 :])
        with pytest.raises(ProgramError, match="removes a hook that no step registers"):
            check_program(Program((), body))


def test_check_program__hook_without_its_steps__is_refused():
    program = record(scaled).program
    body = tuple(step._replace(modes=()) if step.modes == ("hook",) else step for step in program.body)
    with pytest.raises(ProgramError, match="registers a hook whose steps are not directly before it"):
        check_program(program.__class__(program.setup, body))
