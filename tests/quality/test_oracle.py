"""Which side float64 blames where it is not simply nearer to one: NaN, overflow, dtypes that mean something, luck."""

from __future__ import annotations

import pytest
import torch as real
from torch.overrides import TorchFunctionMode

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.blame.float64_runs import widened
from ci_autotest.alignment.blame.oracle import third_opinion
from ci_autotest.alignment.examination import TrialSides
from ci_autotest.alignment.verdict import judge_program, live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.ir import PLACEHOLDER
from tests.engine import RULES, record, substitute
from tests.faults import with_backward

INF, NAN = real.inf, real.nan


def given(body, backend, *inputs, **how):
    """Return the verdict on a body whose inputs are these."""
    tensors = [real.as_tensor(values) for values in inputs]

    def with_inputs():
        return body(*(random_tensor(ndim=each.dim(), **sizes(each), **how) for each in tensors))

    live = live_of(record(with_inputs))
    keys = [step.target for step in live.program.body if step.op == PLACEHOLDER]
    for key, tensor in zip(keys, tensors, strict=True):
        live.sources[key].copy_(tensor)
    return judge_program(live, TrialSides(backend, TorchBackend(), RULES))[0]


def sizes(tensor):
    return {f"dim{at}": size for at, size in enumerate(tensor.shape)}


def rms_without_eps(value, shape, weight=None, eps=None):
    return value / value.square().mean().sqrt()


def finite_nan_to_num(value):
    return real.where(real.isinf(value), real.tensor(1e30), value.nan_to_num())


def without_nan(function):
    return lambda *args: function(*args).nan_to_num(0.0, INF, -INF)


def nan_as(function, number):
    return lambda *args: function(*args).nan_to_num(number, INF, -INF)


BLAMES = [
    ("saturates where the exact result is beyond the range", lambda x, y: x * y,
     {"mul": lambda a, b: (a * b).clamp(max=3.4e38)}, ([2e22, 3.0], [1e22, 1.0]), "candidate"),
    ("a reference that saturates", lambda x: torch.logsumexp(x, 0),
     {"logsumexp": lambda v, dim: real.tensor(INF)}, ([1.0, 2.0],), "candidate"),
    ("nan_to_num", torch.nan_to_num, {"nan_to_num": finite_nan_to_num}, ([INF, NAN, 1.0],), "candidate"),
    ("rms_norm, eps by the dtype", lambda x: torch.nn.functional.rms_norm(x, (3,)), {"rms_norm": rms_without_eps},
     ([1e-5, 2e-5, 1e-6],), "candidate"),
    ("RMSNorm, eps by the dtype", lambda x: torch.nn.RMSNorm(3)(x), {"rms_norm": rms_without_eps},
     ([1e-5, 2e-5, 1e-6],), "candidate"),
    ("rank by the dtype", torch.linalg.matrix_rank, {"linalg.matrix_rank": lambda a: real.tensor(2)},
     ([[1.0, 0.0], [0.0, 1e-7]],), "candidate"),
    ("var_mean of an infinity", lambda x: torch.var_mean(x)[1], {"var_mean": lambda v: (v.var(), v.mean())},
     ([INF, 0.0],), "reference"),
    ("var_mean of an infinity beside a NaN", lambda x: torch.var_mean(x, dim=0)[1],
     {"var_mean": lambda v, dim: (v.var(dim), v.mean(dim))}, ([[INF, NAN], [0.0, 1.0]],), "reference"),
    ("var_mean of an infinity, another mean", lambda x: torch.var_mean(x)[1],
     {"var_mean": lambda v: (v.var(), v.mean().nan_to_num(0, 5.0))}, ([INF, 0.0],), "candidate"),
    ("inf - inf", lambda x, y: x - y, {"sub": without_nan(real.sub)}, ([INF, 1.0], [INF, 0.0]), "candidate"),
    *(
        (f"inf - inf is {infinity}", lambda x, y: x - y, {"sub": nan_as(real.sub, infinity)}, ([INF, 1.0], [INF, 0.0]),
         "candidate")
        for infinity in (INF, -INF)
    ),
    ("NaN where the reference alone has the exact result", lambda x, y: x * y,
     {"mul": lambda a, b: a * b + (a * 1e30 - a * 1e30)}, ([2e15, 3.0], [1.0, 1.0]), "candidate"),
    ("infinite where the reference alone has the exact result", torch.hypot,
     {"hypot": lambda a, b: (a * a + b * b).sqrt()}, ([2e22, 3.0], [2e22, 4.0]), "candidate"),
    ("infinite inverse of a matrix that is none", torch.linalg.inv, {"linalg.inv": lambda v: v / 0.0},
     ([[-0.0625, 1.0], [-0.75, -0.75]],), "candidate"),
    ("NaN where an infinity was given", lambda x: torch.sum(x), {"sum": lambda v: v.sum() + (v[0] - v[0])},
     ([INF, 1.0],), "candidate"),
    ("the other infinity", lambda x, y: x * y, {"mul": lambda a, b: -(a * b)}, ([2e22, 1e22], [1e22, 2e22]),
     "candidate"),
    ("finite where the reference overflows on the way", lambda x: torch.var(x),
     {"var": lambda v: real.tensor(7.0)}, ([1e18, 1.00001e18],), "candidate"),
    ("wrong beside an element that overflows", lambda x, y: x * y,
     {"mul": lambda a, b: real.stack([a[0] * b[0] - a[0] * b[0], a[1] * b[1] * 1.1])}, ([2e22, 3.0], [1e22, 1.0]),
     "candidate"),
    ("NaN swallowed", torch.relu, {"relu": without_nan(real.relu)}, ([NAN, INF],), "candidate"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "functions", "inputs", "blame"), [r[1:] for r in BLAMES], ids=[r[0] for r in BLAMES])
def test_judge__exact_result_that_float64_does_not_give__blame(body, functions, inputs, blame):
    verdict = given(body, substitute(**functions), *inputs, requires_grad=False)
    assert (verdict.outcome, verdict.blame) == ("misaligned", blame)


#: Right by the exact result, or no further from it than the reference: the reference may be blamed, the candidate not.
#: The inverse: whichever way the rows are eliminated, in float32 and in float64, the last pivot is not rounded to zero.
EXCUSED = [
    ("inf - inf where the exact result is beyond the range", lambda x: torch.var(x),
     {"var": lambda v: (v.square().sum() - v.sum() ** 2 / len(v)) / (len(v) - 1)}, ([1e25, 3.0],), "ill_conditioned"),
    ("an infinity where the reference overflows on the way to NaN", lambda x: torch.nn.functional.layer_norm(x, (2,)),
     {"layer_norm": lambda v, *_, **__: (v - v.mean()).square() * v.sign()}, ([1e25, -3.0],), "ill_conditioned"),
    ("right where the reference overflows on the way", lambda x, y: torch.lerp(x, y, 0.25),
     {"lerp": lambda a, b, weight: a * (1 - weight) + b * weight}, ([-3e38, 1.0], [3e38, 2.0]), "reference"),
    ("the inverse of a matrix that is singular but for rounding", torch.linalg.inv,
     {"linalg.inv": lambda v: v / (v[0, 0] * v[1, 1] - v[0, 1] * v[1, 0])}, ([[29.25, 99.9375], [7.5, 25.625]],),
     "ill_conditioned"),
    ("rounded down at the end of the range", lambda x, y: x * y, {"mul": lambda a, b: (a * b).clamp(max=3.4028234e38)},
     ([1.0000001 * 2.0**127], [2.0]), "ill_conditioned"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "functions", "inputs", "blame"), [r[1:] for r in EXCUSED], ids=[r[0] for r in EXCUSED]
)
def test_judge__overflow_that_the_exact_result_excuses__accuses_nobody(body, functions, inputs, blame):
    assert given(body, substitute(**functions), *inputs, requires_grad=False).blame == blame


def product_of_rows(gradient):
    return with_backward(lambda v, dim: v.prod(dim), gradient)


#: The first row's product is NaN in torch, whose gradient of it is NaN throughout.
OF_NAN = [
    ("another formula", lambda v, g: g[:, None] * v.prod(1)[:, None] / v + 0 * v.flip(1), "ill_conditioned"),
    ("NaN hidden", lambda v, g: (g[:, None] * v.prod(1)[:, None] / v).nan_to_num(0.0, 0.0, 0.0), "candidate"),
    ("wrong in the other row", lambda v, g: 1.01 * g[:, None] * v.prod(1)[:, None] / v, "candidate"),
]  # fmt: skip


@pytest.mark.parametrize(("gradient", "blame"), [row[1:] for row in OF_NAN], ids=[row[0] for row in OF_NAN])
def test_judge__gradient_of_an_output_that_is_nan(gradient, blame):
    prod = substitute(prod=product_of_rows(gradient))
    assert given(lambda x: torch.prod(x, 1), prod, [[INF, 0.0, 3.0], [1.0, 2.0, 3.0]]).blame == blame


def group_norm_with(scale):
    class Norm(real.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            return x * weight.reshape(-1, 1)

        @staticmethod
        def backward(ctx, grad):
            return grad, real.full((2,), scale)

    return lambda x, groups, weight, bias=None, eps=1e-5: Norm.apply(x, weight)


@pytest.mark.parametrize(("scale", "blame"), [(0.0, "reference"), (1.0, "both")])
def test_judge__gradient_of_an_output_without_elements__is_zero(scale, blame):
    candidate = substitute(**{"nn.functional.group_norm": group_norm_with(scale)})
    verdict = given(lambda x, w: torch.nn.functional.group_norm(x, 2, w), candidate, real.zeros(3, 2, 0), [1.0, 2.0])
    assert verdict.blame == blame


def test_judge__nan_where_the_exact_result_is_one__has_no_ulp():
    softmax = substitute(softmax=lambda v, dim: real.zeros_like(v))
    verdict = given(lambda x: torch.softmax(x, 0), softmax, [INF, 0.0, 1.0], requires_grad=False)
    assert verdict.oracle == (
        "the reference's own operators in float64 agree with the reference; the candidate is infinitely far off"
    )


LEVELS = [
    ("as far as the reference elsewhere", 1e-3, 1e-3, ("aligned", "ill_conditioned")),
    ("farther", 4e-3, 1e-3, ("misaligned", "candidate")),
    ("nearer", 1e-3, 9e-3, ("aligned", "ill_conditioned")),
]


@pytest.mark.parametrize(("ours", "theirs", "expected"), [row[1:] for row in LEVELS], ids=[row[0] for row in LEVELS])
def test_judge__reference_that_is_off_elsewhere(ours, theirs, expected):
    # They share what is wrong in even elements, so that the reference is off only where the candidate agrees.
    live = live_of(record(lambda: torch.exp(random_tensor(ndim=1, dim0=16, low=0, high=1, requires_grad=False))))

    def off(odd):
        return substitute(exp=lambda value: value.exp() + real.tensor([theirs, odd] * 8) * real.linspace(1, 2, 16))

    verdict = judge_program(live, TrialSides(off(ours), off(0.0), RULES))[0]
    assert (verdict.outcome, verdict.blame) == expected


class _Counting(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += getattr(func, "__name__", "") == "linalg_cholesky"
        return func(*args, **(kwargs or {}))


def test_third_opinion__gradient_that_is_no_derivative__costs_no_more_than_one_that_is():
    def body():
        # The gradient is made symmetric: it is no derivative by the elements of one triangle.
        matrix = random_tensor(ndim=2, dim0=3, dim1=3, low=-0.1, high=0.1) + 4 * torch.eye(3)
        return torch.linalg.cholesky(matrix).expand(400, 3, 3)

    live, _ = widened(live_of(record(body)))
    with _Counting() as counting:
        sentence = third_opinion(live)
    assert "gradcheck does not confirm the float64 gradient" in sentence
    assert counting.calls <= 5


def test_third_opinion__complex_output__is_confirmed():
    live, _ = widened(live_of(record(lambda: torch.fft.fft(torch.tanh(random_tensor(ndim=1, dim0=5))))))
    assert "gradcheck confirms" in third_opinion(live)


def test_judge__wrong_gradient__keeps_the_third_opinion():
    doubled = substitute(tanh=with_backward(real.tanh, lambda v, g: 2 * g * (1 - v.tanh() ** 2)))
    assert given(torch.tanh, doubled, [0.5, -0.25]).oracle.endswith("gradcheck confirms the float64 gradient")
