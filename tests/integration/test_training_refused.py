"""Compilers without a backward pass: what refuses to be trained is unsupported, what trains wrongly is misaligned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.errors import UnsupportedReason
from tests.engine import tried

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.values.verdict import Verdict

MESSAGE = "this compiler is for inference"


def differentiated(graph: real.fx.GraphModule, backward: Callable[[real.Tensor], real.Tensor]) -> Callable[..., Any]:
    """Return the graph of one input and one output as a function with a backward pass of its own."""

    class Kernel(real.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: real.Tensor) -> real.Tensor:
            with real.no_grad():
                (found,) = graph.forward(x)
            return found

        @staticmethod
        def backward(ctx: Any, gradient: real.Tensor) -> real.Tensor:
            return backward(gradient)

    return lambda x: (Kernel.apply(x),)


def no_backward(gradient: real.Tensor) -> real.Tensor:
    raise RuntimeError(MESSAGE)


def not_implemented(gradient: real.Tensor) -> real.Tensor:
    raise NotImplementedError(MESSAGE)


def asserts(gradient: real.Tensor) -> real.Tensor:
    assert gradient.dim() == 7, MESSAGE
    return gradient


def out_of_range(gradient: real.Tensor) -> real.Tensor:
    return gradient[100]


def refuses_in_compiling(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    if any(each.requires_grad for each in inputs):
        raise RuntimeError(MESSAGE)
    return graph.forward


def takes_arrays(graph: real.fx.GraphModule, _: Any) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        return graph.forward(*(real.from_numpy(each.numpy()) for each in args))  # refused of a tensor with a gradient

    return run


def wrong_and_refuses(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    function = refuses_in_compiling(graph, inputs)
    return lambda *args: tuple(each + 1 for each in function(*args))


def refuses_everything(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    raise RuntimeError(MESSAGE)


COMPILERS: dict[str, tuple[Callable[..., Any], str]] = {
    "raises as it compiles": (refuses_in_compiling, "unsupported"),
    "raises as it runs": (takes_arrays, "unsupported"),
    "raises in the backward pass": (lambda graph, _: differentiated(graph, no_backward), "unsupported"),
    "backward pass not implemented": (lambda graph, _: differentiated(graph, not_implemented), "unsupported"),
    "fails in the backward pass": (lambda graph, _: differentiated(graph, out_of_range), "misaligned error"),
    "an assertion fails there": (lambda graph, _: differentiated(graph, asserts), "misaligned error"),
    "gradient of another shape": (
        lambda graph, _: differentiated(graph, lambda g: g[:1, :1, None]),
        "misaligned error",
    ),
    "wrong gradient": (lambda graph, _: differentiated(graph, lambda g: g * 3), "misaligned gradient"),
    "wrong without gradients, too": (wrong_and_refuses, "misaligned value"),
    "raises without gradients, too": (refuses_everything, "misaligned error"),
}


def body(*, requires_grad: bool = True) -> object:
    return torch.exp(torch.sin(random_tensor(dims=(2, 3), requires_grad=requires_grad)))


def seen(compiler: Callable[..., Any], **how: Any) -> Verdict:
    return tried(lambda: body(**how), CompileBackend({"backend": compiler}, delegated=lambda _: 1000))


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(("compiler", "expected"), COMPILERS.values(), ids=COMPILERS)
def test_run__compiler_of_an_inference_engine__is_unsupported_only_where_its_values_are_right(
    compiler: Callable[..., Any], expected: str
):
    found = seen(compiler)
    assert f"{found.outcome} {found.kind or ''}".strip() == expected
    if expected == "unsupported":
        assert found.reason is UnsupportedReason.NOT_TRAINED
        assert found.oracle.startswith("trained, it raises ")


def test_run__three_cases_of_one_size__the_compiler_refuses_once():
    asked: list[bool] = []

    def counting(graph: real.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        asked.append(any(each.requires_grad for each in inputs))
        return refuses_in_compiling(graph, inputs)

    backend = CompileBackend({"backend": counting}, delegated=lambda _: 1000)
    found = [tried(body, backend, case=case, profile="ordinary") for case in (0, 2, 4)]
    (words,) = {each.oracle for each in found}
    assert words.startswith("trained, it raises BackendCompilerFailed: backend=")
    assert words.endswith(f" raised: RuntimeError: {MESSAGE}")
    assert asked == [True, False]


def test_run__no_gradient_is_wanted__an_error_stays_one():
    found = seen(refuses_everything, requires_grad=False)
    assert (found.outcome, found.kind) == ("misaligned", "error")


def test_run__no_gradient_is_wanted__the_compiler_refuses_nothing():
    assert seen(refuses_in_compiling, requires_grad=False).outcome == "aligned"
