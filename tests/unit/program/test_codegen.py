"""Programs as text: it reads well, it runs, and it gives the same bits."""

from __future__ import annotations

import keyword

import pytest
import torch as real

from ci_autotest import cpu_device, gpu_device, random_tensor, torch
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.input_copies import place
from ci_autotest.backends.sameness import same_bits
from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import (
    body_lines,
    expression,
    function_text,
    inputs,
    literal,
    names,
    number,
    output_text,
    setup_lines,
)
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    GET_ATTR,
    OUTPUT,
    PLACEHOLDER,
    Device,
    DType,
    FrameworkConstant,
    List,
    Mapping_,
    Program,
    Ref,
    Slice,
    Step,
    TensorSpec,
    output_refs,
)
from tests.engine import record


def x(**how):
    return random_tensor(ndim=2, dim0=2, dim1=3, **how)


def ints():
    return x(dtype=int, low=1, high=9)


def in_place():
    value = x(requires_grad=False) * 1
    value += 1
    value *= value
    value[0, 1:] = 5
    value[1] = value[0]
    value.add_(1).clamp_(max=3)
    return value


def no_grad():
    value = x()
    with torch.no_grad():
        value = value.exp()
        value[0] = 1
    return value + 1


def branches():
    value = x(requires_grad=False)
    total = float(value.sum()) if bool(value.sum() > -1e9) else 0.0
    return value * total + len(value) + int(value.numel())


def random_steps():
    value = x()
    noise = torch.rand_like(value)
    return torch.nn.functional.dropout(value, 0.5), noise, torch.randn(2, 3), value.detach().clone().normal_()


def modules():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3))
    value = x()
    trained = module(value)
    module.eval()
    return trained, module(value)


def same_names():
    value = torch.relu(x())
    return torch.relu(torch.relu(value)), torch.relu(x()), torch.sum(value)


BODIES = {
    "function": lambda: torch.relu(x()),
    "keywords": lambda: torch.nn.functional.softmax(x(), dim=-1, dtype=torch.float64),
    "method": lambda: x().sum(dim=(0, 1), keepdim=True),
    "arithmetic": lambda: (2 - x()) / (3 + x() ** 2) * -x(),
    "powers": lambda: 2 ** x() + x() ** -2,
    "negative numbers": lambda: -1.5 * x() - -2,
    "unary": lambda: (-x(), +x(), abs(x())),
    "integers": lambda: (ints() // 2, ints() % 3, ~ints(), ints() & 6, ints() | 1, ints() ^ 3),
    "reflected": lambda: (7 // ints(), 7 % ints(), 1 / x(), 2.5 ** x()),
    "comparisons": lambda: (x() < 0, x() <= 0, x() > 0, x() >= 0, x() == 0, x() != 0),
    "matmul": lambda: x() @ x().T,
    "indexing": lambda: (x()[0], x()[:, 1:], x()[..., ::2], x()[None, 0], x()[[0, 1]], x()[-1:, :-1]),
    "index with a tensor": lambda: x()[:, ints()[0] % 3],
    "mask": lambda: (y := x())[y > 0],
    "in place": in_place,
    "no grad": no_grad,
    "branches": branches,
    "random": random_steps,
    "modules": modules,
    "same names": same_names,
    "tuples": lambda: (x().split(1), torch.max(x(), 1), x().unbind(1)),
    "nested outputs": lambda: torch.nn.LSTM(3, 2)(random_tensor(ndim=3, dim2=3)),
    "lists": lambda: (torch.cat([x(), x()], 1), torch.stack((x(), x()))),
    "strings": lambda: torch.einsum("ij,kj->ik", x(), x()),
    "properties": lambda: (x().T, x().mT, x(dtype=complex).real, x().shape and x()),
    "devices": lambda: (x().to(cpu_device()), x().to(gpu_device())),
    "memory format": lambda: x().clone(memory_format=torch.contiguous_format),
    "non-finite numbers": lambda: (x().clamp(max=float("inf")), x() * float("nan"), x() + float("-inf")),
    "complex numbers": lambda: x(dtype=complex) * (1 - 2j),
    "exact numbers": lambda: x() * 0.1 + 1e-45 + 1e300,
    "large integers": lambda: ints() + 2**53 + 1,
    "factories": lambda: (torch.zeros(2, 3), torch.arange(0, 6, 2), torch.full((2,), 1.5, dtype=torch.float64)),
    "dtypes": lambda: (x().half(), x().to(torch.bfloat16), x().double().to(torch.int32)),
    "0-dim": lambda: random_tensor(ndim=0) * 2,
    "pad": lambda: torch.nn.functional.pad(x(), (1, 0, 0, 1), value=-1.0),
    "interpolate": lambda: torch.nn.functional.interpolate(x()[None], size=5, mode="nearest"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("profile", ["ordinary", "non_contiguous"])
def test_function_text__run__gives_the_same_bits(body, profile):
    attempt = record(body, profile=profile)
    assert attempt.refused is None, attempt.trace.failure
    program, sources = live_of(attempt)[:2]
    device = real.device("cpu")
    named = names(program)
    scope = {"torch": real, "device": device}
    for index, step in enumerate(program.steps):
        if step.op == PLACEHOLDER:
            scope[named[index]] = place(sources[step.target], step.args[0], device)
    exec(compile("\n".join(setup_lines(program)), "<setup>", "exec"), scope)  # noqa: S102 - what is under test
    exec(compile(function_text(program), "<program>", "exec"), scope)  # noqa: S102 - likewise
    found = list(scope["program"](*[scope[name] for name, _ in inputs(program)]))
    expected = [attempt.trace.values[ref.index] for ref in output_refs(program)]
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        assert (left.dtype, left.shape, left.requires_grad) == (right.dtype, right.shape, right.requires_grad)
        assert same_bits(left, right)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_names__any_program__are_unique_identifiers(body):
    found = names(record(body).program)
    assert len(set(found)) == len(found)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in found)
    assert not {"torch", "device"} & set(found)


SPEC = TensorSpec("float32", (2,), (1,), 0, 2)


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (Ref(0), "x"), (1, "1"), (-1, "(-1)"), (0.1, "0.1"), (-2.5, "(-2.5)"), (-0.0, "-0.0"), (1e-45, "1e-45"),
        (float("nan"), "float('nan')"), (float("inf"), "float('inf')"), (float("-inf"), "(float('-inf'))"),
        (1 - 2j, "complex(1.0, -2.0)"), (True, "True"), (None, "None"), ("it's", '"it\'s"'), (..., "..."),
        (DType("float64"), "torch.float64"), (Device("cpu"), "'cpu'"), (Device("device"), "device"),
        (FrameworkConstant("torch.channels_last"), "torch.channels_last"), ((), "()"), ((1,), "(1,)"), ((1, Ref(0)), "(1, x)"),
        (List(()), "[]"), (List((1, List((2,)))), "[1, [2]]"), (Mapping_((("a", 1),)), "{'a': 1}"),
        (Slice(None, None, None), ":"), (Slice(1, Ref(0), -1), "1:x:(-1)"), (2**70, str(2**70)),
    ],
    ids=str,
)  # fmt: skip
def test_literal__argument__is_exact_text(argument, text):
    assert literal(argument, ("x",)) == text


@pytest.mark.parametrize(
    "value", [0.1, 1 / 3, 1e-45, 5e-324, 1.7976931348623157e308, -0.0, 2**53 + 1, 123456789.123456789]
)
def test_number__text__reads_back_to_the_same_bits(value):
    assert eval(number(value)).hex() == value.hex() if isinstance(value, float) else eval(number(value)) == value  # noqa: S307 - what is under test


HOSTILE = [
    "x = 1; import os",
    "os.system('x')",
    "a b",
    "",
    "x\n",
    "\n__import__('os')",
    "x)",
    "é",
    "x.y",
    "lambda: 0",
    "'",
    "0x",
]


def placeholder(name: str = "x") -> Step:
    return Step(PLACEHOLDER, "t0", (SPEC,), (), name)


@pytest.mark.parametrize("name", HOSTILE)
def test_names__hostile_name__is_replaced(name):
    assert names(Program((), (placeholder(name),))) == ("value",)


@pytest.mark.parametrize("name", ["torch", "device", "class", "None", "lambda", "import"])
def test_names__name_that_means_something__is_replaced(name):
    assert names(Program((), (placeholder(name),))) == ("value",)


def test_names__name_of_an_adapter_that_is_called__is_replaced():
    # In the script both are names: a value called `group_norm` would hide the function that makes it.
    steps = tuple(Step("call_function", target, (), (), "group_norm") for target in ("adapters.group_norm", "jax.f"))
    assert names(Program((), steps)) == ("group_norm_1", "group_norm_2")


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda name: Step(CALL_METHOD, name, (Ref(0),)), id="method"),
        pytest.param(lambda name: Step(GET_ATTR, name, (Ref(0),)), id="attribute"),
        pytest.param(lambda name: Step(CALL_FUNCTION, "builtins.getattr", (Ref(0), name)), id="getattr"),
        pytest.param(lambda name: Step(CALL_FUNCTION, "torch.relu", (Ref(0),), ((name, 1),)), id="keyword"),
        pytest.param(lambda name: Step(CALL_FUNCTION, "torch.relu", (DType(name),)), id="dtype"),
        pytest.param(lambda name: Step(CALL_FUNCTION, "torch.relu", (FrameworkConstant(name),)), id="constant"),
    ],
)
def test_expression__hostile_identifier__is_never_printed(step):
    for name in HOSTILE:
        with pytest.raises(ProgramError, match="is not an identifier and is never printed as code"):
            expression(step(name), ("x",))


@pytest.mark.parametrize(
    "target",
    [f"torch.{name}" for name in HOSTILE]
    + ["builtins.eval", "builtins.x;y", "operator.x;y", "os.system", "operator.attrgetter"],
)
def test_expression__hostile_function__is_never_printed(target):
    with pytest.raises(ProgramError):
        expression(Step(CALL_FUNCTION, target, (Ref(0), 1)), ("x",))


@pytest.mark.parametrize("text", HOSTILE + ['"""', "\\", "\x00", "\u202e", "{x}"])
def test_literal__hostile_string__is_a_string(text):
    assert eval(literal(text, ())) == text  # noqa: S307 - what is under test
    assert eval(literal(Mapping_(((text, 1),)), ())) == {text: 1}  # noqa: S307 - likewise


def test_output_text__one_and_several__are_tuples():
    out = Step(OUTPUT, "output", (Ref(0),), (), "output")
    assert output_text(Program((), (placeholder(), out))) == "(x,)"
    assert output_text(Program((), (placeholder(), out._replace(args=(Ref(0), Ref(0)))))) == "(x, x)"
    assert output_text(Program((), (placeholder(), out._replace(args=())))) == "()"


def test_function_text__small_program__reads_well():
    program = record(lambda: torch.nn.functional.softmax(x() * 2, dim=-1)).program
    assert function_text(program, "reference") == (
        "def reference(x):\n"
        "    mul = x * 2\n"
        "    softmax = torch.nn.functional.softmax(mul, dim=(-1))\n"
        "    return (softmax,)\n"
    )


def test_function_text__renamed__calls_the_candidate():
    program = record(lambda: torch.softmax(x(), dim=0)).program
    text = function_text(program, rename={"torch.softmax": "mykernels.softmax"}.get)
    assert "softmax = mykernels.softmax(x, dim=0)" in text


def test_body_lines__random_step__sets_its_seed():
    lines = body_lines(record(lambda: torch.rand_like(x())).program)
    assert lines[0].startswith("torch.manual_seed(")
    assert lines[1] == "rand_like = torch.rand_like(x)"


def test_expression__read_of_a_module_by_its_path__is_one_of_attributes_in_another_framework():
    step = Step(CALL_METHOD, "get_parameter", (Ref(0), "0.weight"))
    found = [expression(step, ("x",)), expression(step, ("x",), namespace="oneflow")]
    assert found == ["x.get_parameter('0.weight')", "x[0].weight"]


@pytest.mark.parametrize("name", [*(name for name in HOSTILE if name != "x.y"), "0.__dict__"])
def test_expression__hostile_path_in_a_module__is_never_printed(name):
    with pytest.raises(ProgramError):
        expression(Step(CALL_METHOD, "get_parameter", (Ref(0), name)), ("x",), namespace="oneflow")
