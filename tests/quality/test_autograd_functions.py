"""A user's autograd function is traced: its value and its own gradient are what plain torch gives, and are compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.errors import AuthorError
from ci_autotest.program.codegen import body_lines
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from tests.engine import Rules, judged, record, substitute

BACKEND = TorchBackend()
BITWISE = Rules(strictness="bitwise")


class Cube(Function):
    """With a gradient of its own: half of the right one."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2 * 0.5


class Scaled(Function):
    @staticmethod
    def forward(x: Any, weight: Any, scale: float) -> Any:
        return x * weight * scale

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, ctx.scale = inputs
        ctx.save_for_backward(x, weight, output)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight, _ = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return gradient * weight * ctx.scale, gradient * x * ctx.scale if needed[1] else None, None


class Reversed(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        return -gradient


class Deeper(Cube):
    """Inherits its backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return Cube.forward(ctx, Cube.apply(x))


class Rounded(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        found = x.sign()
        ctx.mark_non_differentiable(found)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        raise AssertionError


class Real(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.real.double()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return real.complex(gradient, gradient).to(real.complex64)


class Pair(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x + 1, x + 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] + gradients[1]


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


class TooMany(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, gradient


cube = Cube.apply  # the alias that PyTorch's documentation recommends


def without_grad(x: Any) -> Any:
    with real.no_grad():
        held = cube(x)
    return x * held


USES = {
    "alias": (lambda x: cube(x), {}),
    "twice": (lambda x: cube(cube(x)).exp(), {}),
    "setup_context": (lambda x: Scaled.apply(x, x.detach() + 1, 2.0), {}),
    "two inputs": (lambda x: Scaled.apply(x, x.sin(), 2.0), {}),
    "input as result": (lambda x: Reversed.apply(x * 1.5).exp(), {}),
    "input that is a leaf as result": (lambda x: Reversed.apply(x).exp(), {}),
    "one in another": (lambda x: Deeper.apply(x), {}),
    "without grad": (without_grad, {}),
    "not differentiable": (lambda x: Rounded.apply(x) * x, {}),
    "complex to real": (lambda x: Real.apply(x), {"dtype": real.complex64}),
    "special values": (lambda x: cube(x / 0.0), {}),
    "half": (lambda x: cube(x), {"dtype": real.float16}),
    "no dimension": (lambda x: cube(x.sum()), {"dtype": real.float16}),
}


def recorded(name: str) -> Any:
    use, how = USES[name]
    return record(lambda: use(random_tensor(2, 3, 2, **how)))


@pytest.mark.parametrize("name", USES)
def test_function__traced__gives_what_plain_torch_gives(name: str):
    attempt = recorded(name)
    assert attempt.refused is None, attempt.trace.failure
    trace = BACKEND.run(attempt.program, attempt.sources)
    BACKEND.backward(attempt.program, trace, attempt.cotangents)
    x = attempt.sources["t0"].clone().requires_grad_()
    out = USES[name][0](x)
    out.backward(attempt.cotangents[0])
    shown = trace.values[attempt.program.body[-1].args[0].index]
    assert (shown.dtype, shown.shape, shown.requires_grad, shown.is_leaf) == (out.dtype, out.shape, True, False)
    assert real.equal(
        shown.nan_to_num() if not shown.is_complex() else shown, out.nan_to_num() if not out.is_complex() else out
    )
    assert attempt.program.steps[0].op == PLACEHOLDER
    assert real.allclose(trace.gradients[0], x.grad, equal_nan=True)


@pytest.mark.parametrize("name", USES)
def test_function__traced__replays_and_is_saved(name: str):
    attempt = recorded(name)
    recording = to_recording(live_of(attempt))
    assert decode(encode_program(recording), encode_tensors(recording)) == recording
    assert judged(attempt, BACKEND, BITWISE).verdict.outcome == "aligned"


def test_function__printed__is_code_that_runs_with_its_gradient():
    attempt = recorded("alias")
    x = attempt.sources["t0"].clone().requires_grad_()
    scope: dict[str, Any] = {"torch": real, "x": x, "captured": attempt.sources["t1"]}
    exec("\n".join(body_lines(attempt.program)), scope)  # noqa: S102 - the printed text, which must run
    scope["where"].sum().backward()
    assert real.allclose(x.grad, 1.5 * x.detach() ** 2)


def test_function__classes__are_left_as_they_were():
    before = [dict(vars(one)) for one in (Cube, Scaled, Deeper)]
    recorded("alias")
    with pytest.raises(AuthorError):
        record(lambda: Pair.apply(random_tensor()))
    assert [dict(vars(one)) for one in (Cube, Scaled, Deeper)] == before


def test_function__kernel_that_is_wrong_in_its_forward__is_found():
    verdict = judged(recorded("setup_context"), substitute(mul=lambda a, b: real.Tensor.mul(a, b) * 1.01)).verdict
    assert (verdict.outcome, verdict.operator) == ("misaligned", "torch.mul")


def test_function__kernel_that_is_wrong_in_its_backward__is_found():
    verdict = judged(recorded("input as result"), substitute(neg=lambda x: real.Tensor.neg(x) * 1.01)).verdict
    assert (verdict.outcome, verdict.kind) == ("misaligned", "gradient")


def test_function__applied_to_plain_tensors_in_a_body__is_torchs_own():
    def body() -> Any:
        plain = real.ones(2, requires_grad=True)
        cube(plain).sum().backward()
        assert plain.grad.tolist() == [1.5, 1.5]
        x = random_tensor(2, 3, 2)
        with real.no_grad():
            held = cube(x)
        return x * held

    attempt = record(body)
    assert body_lines(attempt.program) == ["with torch.no_grad():", "    pow = x ** 3", "mul = x * pow"]


def test_function__on_a_compiled_candidate__is_unsupported_and_says_why():
    verdict = judged(recorded("alias"), CompileBackend({"backend": "aot_eager"})).verdict
    assert verdict.outcome == "unsupported"
    assert verdict.oracle.startswith("a hook keeps a value for later (for example that of an autograd function")


def local() -> Any:
    class Local(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    return Local.apply(torch.exp(random_tensor()))


REFUSED = {
    "several results": (
        lambda: Pair.apply(random_tensor()),
        "Pair.forward returns a tuple, but only a torch.autograd.Function that returns one recorded tensor can be recorded. "
        "Split it, or make it a candidate: `backend: substitute`.",
    ),
    "writes to its input": (
        lambda: Dirty.apply(random_tensor() * 2),
        "a Function that writes to its input (ctx.mark_dirty) cannot be",
    ),
    "too many gradients": (
        lambda: TooMany.apply(random_tensor()),
        "TooMany.backward returns 2 gradients for 1 inputs. Return one",
    ),
    "defined in the body": (
        local,
        "a torch.autograd.Function that is defined inside the body was applied to a recorded",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_function__that_cannot_be_traced__says_what_to_write(name: str):
    body, said = REFUSED[name]
    with pytest.raises(AuthorError) as refused:
        record(body, test=name)
    assert said in str(refused.value)
