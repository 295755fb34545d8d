"""Kernels are called for what their row declares, and no gradient is asked of one that has none."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.protocol import out_of_scope
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.backends.substitute.call_scope import CallScope
from ci_autotest.errors import UnsupportedReason
from ci_autotest.record.draw.profiles import LARGE_SHAPES
from ci_autotest.values.kernel_scope import KernelScope
from tests.engine import is_sure, record, run_test, tried


def kernels(scope, **functions):
    backend = SubstituteBackend({}, scope=scope)
    backend.functions = {operator_of(f"torch.{name}"): function for name, function in functions.items()}
    return backend


def in_numpy(x):
    """Compute as a kernel does that knows nothing of autograd: a tensor that requires grad makes it raise."""
    return real.from_numpy(real.exp(x).numpy()) if x.dim() else real.exp(x)


def unary():
    return torch.exp(random_tensor(2, dim0=3, dim1=4))


def transposed():
    return torch.exp(random_tensor(2, dim0=3, dim1=4).t())


def by_index():
    index = random_tensor(1, dim0=3, low=0, high=4, dtype=int, requires_grad=False)
    return torch.nn.functional.embedding(index, random_tensor(2, dim0=5, dim1=4))


def integers():
    return torch.abs(random_tensor(1, dim0=3, dtype=int, requires_grad=False))


def never(*_, **__):
    message = "a kernel was called outside of its scope"
    raise AssertionError(message)


OUTSIDE = {
    "dtype": (unary, "exp", KernelScope(dtypes=("float16", "bfloat16")), "dtype float32"),
    "integers": (integers, "abs", KernelScope(dtypes=("float32",)), "dtype int64"),
    "device": (unary, "exp", KernelScope(devices=("cuda",)), "device cpu"),
    "layout": (transposed, "exp", KernelScope(layouts=("contiguous",)), "not contiguous"),
    "profile": (unary, "exp", KernelScope(profiles=("large",)), "profile ordinary"),
}


@pytest.mark.parametrize(("body", "name", "scope", "why"), OUTSIDE.values(), ids=OUTSIDE)
def test_tried__call_outside_the_scope__is_unsupported_and_not_made(body, name, scope, why):
    verdict = tried(body, kernels(scope, **{name: never}))
    assert (verdict.outcome, verdict.reason) == ("unsupported", UnsupportedReason.OUT_OF_SCOPE)
    assert why in verdict.oracle


INSIDE = {
    "dtype": (unary, "exp", KernelScope(dtypes=("float32",))),
    "indices beside floats": (by_index, "nn.functional.embedding", KernelScope(dtypes=("float32",))),
    "device": (unary, "exp", KernelScope(devices=("cpu",))),
    "layout": (unary, "exp", KernelScope(layouts=("contiguous",))),
    "profile": (unary, "exp", KernelScope(profiles=("ordinary",))),
}


@pytest.mark.parametrize(
    ("taken", "is_outside"),
    [((), False), (("ordinary",), False), (("zero_size",), True)],
    ids=["all", "ordinary", "other"],
)
def test_out_of_scope__sizes_of_timed_cases__are_ordinary(taken: tuple[str, ...], is_outside: bool):
    large = record(lambda: torch.exp(random_tensor(2)))._replace(profile=LARGE_SHAPES)
    assert (out_of_scope(kernels(KernelScope(profiles=taken)), large) is not None) is is_outside


@pytest.mark.parametrize(("body", "name", "scope"), INSIDE.values(), ids=INSIDE)
def test_tried__call_within_the_scope__is_compared(body, name, scope):
    reference = real.nn.functional.embedding if "embedding" in name else getattr(real, name)
    assert tried(body, kernels(scope, **{name: reference})).outcome == "aligned"
    wrong = kernels(scope, **{name: lambda *args, **_: reference(*args) + 1})
    assert tried(body, wrong).outcome == "misaligned"


FORWARD_ONLY = KernelScope(forward_only=("torch.exp",))


def chained():
    return (torch.exp(random_tensor()) * random_tensor(requires_grad=False, ndim=0)).sum()


def test_run_test__forward_only_kernel__is_aligned_and_its_wrong_values_are_found():
    assert {item.outcome for item in run_test(chained, kernels(FORWARD_ONLY, exp=in_numpy))} == {"aligned"}
    wrong = run_test(chained, kernels(FORWARD_ONLY, exp=lambda x: in_numpy(x) * 1.01))
    assert {(item.operator, item.kind) for item in wrong if item.outcome == "misaligned"} == {("torch.exp", "value")}


def test_tried__forward_only_kernel_that_is_not_declared__is_misaligned():
    assert tried(unary, kernels(KernelScope(), exp=in_numpy)).outcome == "misaligned"


def test_call_scope__kernel_of_an_operator_that_no_module_has_yet__is_forward_only():
    scope = CallScope(KernelScope(forward_only=("references.rope",)))
    assert scope.is_forward_only({"references.rope": 1})
    assert not scope.lacks_flags({"references.rope": 1})


class PlainTanh(real.nn.Module):
    """A layer that knows nothing of autograd."""

    def forward(self, x):
        return x.detach().tanh()


@pytest.mark.parametrize(("names", "outcome"), [(("torch.nn.Tanh",), "aligned"), ((), "misaligned")])
def test_tried__class_of_modules_that_is_forward_only__is_aligned_where_its_row_says_so(names, outcome):
    backend = SubstituteBackend({"torch.nn.Tanh": f"{__name__}.PlainTanh"}, scope=KernelScope(forward_only=names))
    assert tried(lambda: torch.nn.Tanh()(random_tensor(2, 3, 4)), backend).outcome == outcome


def test_is_sure__forward_only_kernel__needs_no_second_run():
    assert is_sure(record(unary), kernels(FORWARD_ONLY, exp=in_numpy))


def test_tried__forward_only_kernel_in_place__is_aligned():
    assert tried(lambda: (random_tensor() + 0).exp_(), kernels(FORWARD_ONLY, exp=in_numpy)).outcome == "aligned"


def test_tried__body_asks_for_the_gradient_of_a_forward_only_kernel__is_unsupported():
    def body():
        x = random_tensor()
        torch.exp(x).sum().backward()
        return x.grad

    verdict = tried(body, kernels(FORWARD_ONLY, exp=in_numpy))
    assert (verdict.outcome, verdict.reason) == ("unsupported", UnsupportedReason.OUT_OF_SCOPE)


def test_tried__other_operator_of_a_candidate_with_forward_only_kernels__has_its_gradients_compared():
    class Wrong(real.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos() * 1.1

    verdict = tried(lambda: torch.sin(random_tensor()), kernels(FORWARD_ONLY, exp=in_numpy, sin=Wrong.apply))
    assert (verdict.outcome, verdict.kind) == ("misaligned", "gradient")


def test_as_graph__kernels_with_a_scope__have_none():
    # Without a scope they have one: `integration/test_check_graph.py`.
    assert kernels(FORWARD_ONLY, exp=in_numpy).as_graph() is None
