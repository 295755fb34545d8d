"""A trial says what differs, of each kind, and its fast path is never sure where the long one finds something."""

from __future__ import annotations

import re
import sys

import pytest
import torch as real

from ci_autotest import random, random_tensor, torch
from ci_autotest.alignment.cases import judge_refusal
from ci_autotest.alignment.differences import Examination, with_rank_faults
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.trace import RankFault, Trace
from ci_autotest.program.codegen import names
from ci_autotest.program.ir import step_refs
from ci_autotest.values.verdict import Gradient, Misalignment
from tests.engine import Contender, Rules, differences, is_sure, record, substitute, tried
from tests.faults import mutating, right_exp_that_writes_its_cotangent, with_backward


def x(**how):
    return random_tensor(ndim=2, dim0=3, dim1=4, **how)


def chain():
    return torch.exp(torch.sin(x()) * 2).sum(dim=0)


def normalized():
    module = torch.nn.BatchNorm1d(4)
    return module(x())


def in_place():
    value = x(requires_grad=False)
    value += 1
    value[0] = 0
    return value.clamp_(-0.5, 0.5)


def detached_and_written():
    value = x(requires_grad=False)
    value.detach().mul_(2)
    return value + 1


def written_through_a_view():
    value = x(requires_grad=False)
    value.detach().mul_(2)
    return value


def overwritten():
    value = x() * 1
    kept = torch.exp(value)
    value.mul_(3)
    return kept, value


BODIES = {
    "one call": lambda: torch.exp(x()),
    "chain": chain,
    "tuple": lambda: torch.max(x(), dim=1),
    "matmul": lambda: torch.matmul(x(), random_tensor(ndim=2, dim0=4)),
    "module": normalized,
    "in place": in_place,
    "view written": detached_and_written,
    "overwritten value": overwritten,
    "branch": lambda: (y := x()) * (2 if y.detach().sum() > 0 else 3),
    "sizes": lambda: (y := x()).reshape(y.shape[0] * y.shape[1]),
    "free": lambda: torch.softmax(random_tensor(), dim=-1),
    "no grad": lambda: x(requires_grad=False).exp(),
    "integers": lambda: x(dtype=int) * 2,
    "complex": lambda: torch.exp(x(dtype=complex, low=-1, high=1)),
    "output twice": lambda: ((y := x().exp()), y),
    "leaf returned": lambda: ((y := x()), y * 2),
}


def asking(value):
    """Compute rightly, and ask for a gradient of the input besides."""
    result = value.detach().exp()
    value.requires_grad_()
    return result


CANDIDATES = {
    "exp that changes its input's flag": substitute(exp=asking),
    "torch": TorchBackend(),
    "exp off": substitute(exp=lambda v: v.exp() + 1e-3),
    "exp near": substitute(exp=lambda v: v.double().exp().to(v.dtype) if not v.is_complex() else v.exp()),
    "exp without grad": substitute(exp=lambda v: v.exp().detach()),
    "exp, wrong gradient": substitute(exp=with_backward(real.exp, lambda v, grad: grad)),
    "mul off": substitute(mul=lambda a, b: a * b + 1e-2),
    "mul as a view is lost": substitute(detach=lambda v: v.detach().clone()),
    "softmax that writes": substitute(softmax=mutating(real.softmax)),
    "batch_norm that forgets": substitute(
        batch_norm=lambda v, mean, var, *more, **how: real.nn.functional.batch_norm(
            v, mean.clone(), var.clone(), *more, **how
        )
    ),
    "max with other indices": substitute(max=lambda v, dim: (v.max(dim).values, v.min(dim).indices)),
    "matmul in float64": substitute(matmul=lambda a, b: (a.double() @ b.double()).float()),
    "reshape that copies": substitute(reshape=lambda v, *shape: v.clone().reshape(*shape)),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("strictness", ["tolerance", "bitwise"])
def test_fast_path__is_sure__examination_finds_nothing(body, strictness):
    rules = Rules(strictness=strictness)
    sure = 0
    for name, backend in CANDIDATES.items():
        for case in (0, 1, 3):
            attempt = record(body, case)
            if attempt.refused is None and is_sure(attempt, backend, rules):
                sure += 1
                assert differences(attempt, backend, rules) == [], (name, case)
    assert body in (in_place, detached_and_written, overwritten) or sure


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_differences__torch_itself__are_none(body):
    for case in range(6):
        attempt = record(body, case)
        if attempt.refused is None:
            assert differences(attempt, TorchBackend(), Rules(strictness="bitwise")) == []


def found_in(body, backend, rules=Rules(), **how) -> list[tuple[str, str]]:  # noqa: B008 - frozen
    return [(item.kind, item.what) for item in differences(record(body, **how), backend, rules)]


def two_outputs():
    value = x()
    return torch.exp(value), value * 2


KINDS = [
    ("value", lambda: torch.exp(x()), {"exp": lambda v: v.exp() + 1}, ("value", "value of exp")),
    ("NaN swallowed", lambda: torch.log(x(low=-2, high=-1)), {"log": lambda v: v.log().nan_to_num()},
     ("value", "value of log")),
    ("shape", lambda: torch.exp(x()), {"exp": lambda v: v.exp()[None]}, ("shape", "shape of exp")),
    ("dtype", lambda: torch.exp(x()), {"exp": lambda v: v.exp().double()}, ("dtype", "dtype of exp")),
    ("requires_grad lost", lambda: torch.exp(x()), {"exp": lambda v: v.exp().detach()}, ("metadata", "metadata of exp")),
    ("requires_grad gained", lambda: torch.exp(x(requires_grad=False)),
     {"exp": lambda v: v.exp().requires_grad_()}, ("metadata", "metadata of exp")),
    ("leaf of its own", lambda: torch.exp(x()), {"exp": lambda v: v.detach().exp().requires_grad_()},
     ("metadata", "metadata of exp")),
    ("gradient", lambda: torch.exp(x()), {"exp": with_backward(real.exp, lambda v, g: g)}, ("gradient", "gradient of x")),
    ("gradient missing", lambda: torch.mul(x(), x()), {"mul": lambda a, b: a * b.detach()}, ("gradient", "gradient of y")),
    ("gradient too many", lambda: torch.mul((y := x()), 2) + y.detach(),
     {"detach": lambda v: v * 1}, ("metadata", "metadata of detach")),
    ("mutation of the input", lambda: torch.exp(x()), {"exp": mutating(real.exp)}, ("mutation", "x after the run")),
    ("mutation lost", written_through_a_view, {"detach": lambda v: v.detach().clone()}, ("mutation", "x after the run")),
    ("state", normalized, CANDIDATES["batch_norm that forgets"].functions, ("state", "state running_mean after the run")),
    ("cotangent written to", lambda: torch.exp(x()), {"exp": right_exp_that_writes_its_cotangent},
     ("mutation", "gradient put into output 0, which the backward pass wrote to")),
    ("arity", lambda: torch.max(x(), dim=1), {"max": lambda v, dim: v.max(dim).values}, ("shape", "shape of max")),
    ("arity, too many", lambda: torch.max(x(), dim=1), {"max": lambda v, dim: (*v.max(dim), v)}, ("shape", "shape of max")),
    ("None for a tensor", lambda: torch.exp(x()), {"exp": lambda _: None}, ("shape", "shape of exp")),
    ("a number for a tensor", lambda: torch.sum(x()), {"sum": lambda v: float(v.detach().sum())}, ("shape", "shape of sum")),
    ("raises", lambda: torch.exp(x()), {"exp": lambda _: 1 / 0}, ("error", "call of exp")),
    ("raises backward", lambda: torch.exp(x()), {"exp": with_backward(real.exp, lambda _, g: g / 0 + [])},
     ("error", "backward pass")),
    ("scalar of a branch", lambda: (y := x()) * (1 if torch.any(y.detach() > 5) else 2),
     {"any": lambda v: v.detach().logical_not().any()}, ("value", "value of any")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "functions", "expected"), [row[1:] for row in KINDS], ids=[row[0] for row in KINDS])
def test_differences__planted_fault__is_of_its_kind(body, functions, expected):
    backend = substitute()
    backend.functions = dict(functions)
    if not any("." in name for name in functions):
        backend = substitute(**functions)
    attempt = record(body)
    found = [(item.kind, item.what) for item in differences(attempt, backend)]
    assert expected in found[:1] + [item for item in found if item[0] == "state"]
    assert not is_sure(record(body), backend)


#: What two sides may do differently and mean the same.
CONVENTIONS = {
    "zeros, where the reference has no gradient": (
        lambda: torch.linalg.vector_norm(x(), 0), {"torch.linalg.vector_norm": lambda v, _: (v != 0).sum() + 0 * v.sum()}
    ),
    "no gradient, where the reference has zeros": (
        lambda: torch.sign(x()), {"torch.sign": with_backward(real.sign, lambda _, __: None)}
    ),
    "a sum of nothing is its argument itself": (lambda: torch.sum(random_tensor(ndim=0)), {"torch.sum": lambda v: v}),
}  # fmt: skip


@pytest.mark.parametrize(("body", "functions"), CONVENTIONS.values(), ids=CONVENTIONS)
def test_differences__a_convention__is_none(body, functions):
    backend = substitute()
    backend.functions = dict(functions)
    assert differences(record(body), backend) == []


def test_differences__gradient_that_the_reference_does_not_have__is_misaligned():
    backend = substitute()
    backend.functions = {"torch.linalg.vector_norm": lambda v, _: (v != 0).sum() + v.sum() - v.sum().detach()}
    found = differences(record(lambda: torch.linalg.vector_norm(x(), 0)), backend)
    assert [(item.what, item.reference) for item in found] == [("gradient of x", "no gradient")]


def test_tried__input_that_the_reference_alone_writes_to__is_named_by_the_call_that_took_it():
    def body():
        value = x(requires_grad=False)
        value.contiguous().mul_(2)
        return value

    backend = substitute()
    backend.functions = {"torch.Tensor.contiguous": lambda v, **_: v.clone()}
    verdict = tried(body, backend)
    assert (verdict.kind, verdict.operator, verdict.accumulated) == ("mutation", "torch.Tensor.contiguous", True)


def test_tried__flags_of_the_input_changed__is_misaligned():
    verdict = tried(lambda: torch.exp(x(requires_grad=False)), substitute(exp=asking))
    assert (verdict.outcome, verdict.operator) == ("misaligned", "torch.exp")


def test_differences__value_and_what_follows__come_in_program_order():
    assert found_in(chain, substitute(sin=lambda v: v.sin() + 1e-2))[:4] == [
        ("value", "value of sin"),
        ("value", "value of mul"),
        ("value", "value of exp"),
        ("value", "value of sum"),
    ]


def test_differences__gradients__come_from_the_output_back():
    backend = substitute(exp=with_backward(real.exp, lambda v, grad: 2 * grad * v.exp()))
    assert found_in(chain, backend) == [
        ("gradient", "gradient of mul"),
        ("gradient", "gradient of sin"),
        ("gradient", "gradient of x"),
    ]


def test_differences__gradient_of_an_overwritten_value__is_of_the_version_seen():
    backend = substitute(exp=with_backward(real.exp, lambda v, grad: 2 * grad * v.exp()))
    assert ("gradient", "gradient of mul") in found_in(overwritten, backend)


def test_differences__module_parameter__is_named():
    backend = substitute(linear=lambda v, w, b: real.nn.functional.linear(v, w.detach() * 1, b))
    assert ("gradient", "gradient of module.weight") in found_in(lambda: torch.nn.Linear(4, 2)(x()), backend)


def layers():
    return torch.nn.Linear(5, 2)(torch.nn.Linear(4, 5)(x()))


def second(function, faulty):
    """Return a function that is faulty in its second call alone."""
    calls = []

    def called(*args):
        calls.append(args)
        return (faulty if len(calls) % 2 == 0 else function)(*args)

    return called


def failing(_):
    message = "no"
    raise ValueError(message)


NAMES = {
    "value": (lambda: torch.exp(torch.exp(x())), {"exp": second(real.exp, lambda v: v.exp() + 1)}, "value of exp_1"),
    "call": (lambda: torch.exp(torch.exp(x())), {"exp": second(real.exp, failing)}, "call of exp_1"),
    "element of a tuple": (
        lambda: torch.max(torch.max(x(), 1)[0] + x(), 1)[0],
        {"max": lambda v, dim: (v.max(dim).values + 1, v.max(dim).indices)},
        "value of max[0]",
    ),
    "name of a builtin": (lambda: torch.abs(x()), {"abs": lambda v: v.abs() + 1}, "value of abs_0"),
    "keyword": (lambda: x(dtype=int) & 1, {"bitwise_and": lambda v, n: (v & n) + 1}, "value of value"),
    "parameter": (
        layers,
        {"nn.functional.linear": lambda v, w, b: real.nn.functional.linear(v, w, b.detach() if len(w) == 5 else b)},
        "gradient of module_1.bias",
    ),
    "mutation": (
        lambda: torch.exp(torch.sin(torch.exp(x()))),
        {"exp": mutating(real.exp)},
        "x after the run",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "functions", "said"), NAMES.values(), ids=NAMES)
def test_differences__name__is_the_one_that_the_program_prints(body, functions, said):
    attempt = record(body, profiles=())

    found = differences(attempt, substitute(**functions))

    assert said in {str(item.at) for item in found}
    named, steps = names(attempt.program), attempt.program.steps
    for item in found:
        is_element = getattr(item.at, "element", None) is not None
        assert getattr(item.at, "name", "") in {
            "",
            named[step_refs(steps[item.step])[0].index if is_element else item.step],
        }


def test_with_rank_faults__two_modules__each_parameter_has_a_name_of_its_own():
    program = record(layers, profiles=()).program
    modules = [index for index, step in enumerate(program.steps) if step.name == "module"]
    trace = Trace()
    trace.rank_faults = [RankFault(modules[0], (modules[0], "bias"), is_call=False, seen="a", expected="b")]
    whole = [
        Misalignment(kind="gradient", step=index, at=Gradient(name=name, parameter="bias"), candidate="", reference="")
        for index, name in zip(modules, ("module", "module_1"), strict=True)
    ]

    found = with_rank_faults(whole, trace, Examination(program, {}, {}, Rules()), has_backward=True)

    assert [(item.kind, str(item.at)) for item in found] == [
        ("gradient", "gradient of module_1.bias"), ("rank", "gradient of module.bias"),
    ]  # fmt: skip


def test_differences__candidate_raises__says_what():
    found = differences(record(lambda: torch.exp(x())), substitute(exp=lambda _: {}["key"]))
    assert [(f.kind, f.candidate, f.reference) for f in found] == [("error", "raises KeyError", "returns")]
    assert re.fullmatch(r"KeyError: 'key' \(test_differences\.py, line \d+ in <lambda>\)", found[0].detail)


@pytest.mark.parametrize("status", [0, 1], ids=["as if all were well", "failing"])
def test_differences__candidate_exits__is_an_error(status):
    def leave(_):
        sys.exit(status)

    found = differences(record(lambda: torch.exp(x())), substitute(exp=leave))
    assert [(f.kind, f.candidate) for f in found] == [("error", "raises SystemExit")]


def test_differences__after_the_candidate_raised__earlier_values_stand():
    backend = substitute(sin=lambda v: v.sin() + 1, exp=lambda _: 1 / 0)
    assert [kind for kind, _ in found_in(chain, backend)] == ["value", "value", "error"]


def test_differences__dtype_unchecked__compares_values_in_gradients_too():
    backend = substitute(exp=lambda v: v.double().exp())
    assert found_in(lambda: torch.exp(x()), backend, Rules(check_dtype=False)) == []


@pytest.mark.parametrize(
    "rules", [Rules(rtol=0.0, atol=1.1e-3), Rules(rtol=0.0, atol=0.9e-3)], ids=["within", "outside"]
)
def test_differences__tolerance_of_the_test__holds(rules):
    backend = substitute(exp=lambda v: v.exp() + 1e-3)
    assert bool(found_in(lambda: torch.exp(x(requires_grad=False)), backend, rules)) == (rules.atol < 1e-3)


def test_differences__reference_backward_raises__forward_stands_alone():
    def body():
        value = x()
        y = torch.exp(value)
        y.detach().zero_()  # what exp saved is gone
        return y

    def saved_version_error():
        value = x()
        y = torch.exp(value)
        y.mul_(2)
        z = torch.sin(y)
        y.add_(1)
        return z

    assert tried(body, TorchBackend()).outcome == "aligned"
    assert tried(saved_version_error, TorchBackend()).outcome == "aligned"
    assert tried(saved_version_error, substitute(sin=lambda v: v.sin() + 1)).operator == "torch.sin"


def test_judge_refusal__candidate_accepts_the_refused_step__is_told():
    attempt = record(lambda: torch.reshape(x(), (7,)))
    found = judge_refusal(attempt, Contender(substitute(reshape=lambda v, shape: v.flatten()[: shape[0]]), Rules()))
    assert (found.verdict.outcome, found.verdict.kind, found.verdict.operator) == (
        "misaligned", "leniency", "torch.reshape",
    )  # fmt: skip
    assert "invalid for input of size 12" in found.verdict.misalignment.detail


@pytest.mark.parametrize("functions", [{}, {"exp": real.exp}], ids=["torch", "an operator that does not occur"])
def test_judge_refusal__nothing_replaced__is_not_compared(functions):
    attempt = record(lambda: torch.reshape(x(), (7,)))
    assert judge_refusal(attempt, Contender(substitute(**functions), Rules())).verdict.outcome == "unsupported"


@pytest.mark.parametrize(
    ("body", "backend"),
    [
        (lambda: torch.reshape(x(), (7,)), substitute(reshape=real.reshape)),
        (lambda: torch.nn.Conv2d(3, 2, 1, groups=2)(x()), TorchBackend()),
    ],
    ids=["a call", "a module that cannot be made"],
)
def test_judge_refusal__candidate_refuses_too__is_aligned(body, backend):
    assert judge_refusal(record(body), Contender(backend, Rules())).verdict.outcome == "aligned"


def test_tried__no_case_in_which_a_random_operator_differs__with_one_seed():
    def body():
        return torch.nn.functional.dropout(x(), 0.5), torch.nn.Dropout(random(0, 1).to(float))(x())

    assert {tried(body, TorchBackend(), Rules(strictness="bitwise"), case=case).outcome for case in range(0, 8, 2)} == {
        "aligned"
    }


def test_two_outputs__one_wrong__other_is_not_named():
    found = found_in(two_outputs, substitute(exp=lambda v: v.exp() * (1 + 1e-3)))
    assert ("value", "value of mul") not in found
    assert found[0] == ("value", "value of exp")


def test_differences__gradient_of_a_value_used_twice__is_the_sum():
    def body():
        value = x() * 1
        return torch.exp(value) + torch.sin(value)

    assert found_in(body, substitute(exp=real.exp)) == []
    backend = substitute(sin=with_backward(real.sin, lambda v, grad: -grad * v.cos()))
    assert found_in(body, backend) == [("gradient", "gradient of mul"), ("gradient", "gradient of x")]
