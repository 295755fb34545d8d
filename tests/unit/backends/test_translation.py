"""Translation: a row's renames, defaults, constants and adapters; what has no counterpart is refused with its name."""

from __future__ import annotations

import pytest

from ci_autotest import torch as recorded
from ci_autotest.backends.framework.mapping.table import read_table
from ci_autotest.backends.framework.mapping.translation import Translator, translated
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    NO_GRAD,
    OUTPUT,
    PLACEHOLDER,
    UNPACK,
    DType,
    FrameworkConstant,
    List,
    Program,
    Ref,
    Slice,
    Step,
    TensorSpec,
    autocast_mode,
)
from ci_autotest.program.refusal import refused
from tests.engine import record

X, Y = Ref(0), Ref(1)
SPEC = TensorSpec("float32", (2, 3), (3, 1), 0, 6, requires_grad=True)
ROWS = """
framework: toy
version: "1.0"
namespace: toy
operators:
  torch.add: {to: toy.plus, inplace: toy.plus_, rename: {input: x, other: y}, default: {alpha: 1}, reason: no scale}
  torch.sub: {to: toy.minus, positional: [input, other], reason: by position}
  torch.nn.functional.softmax: {to: toy.softmax, rename: {dim: axis}, fill: {axis: -1, stable: true}, reason: its axis}
  torch.nn.functional.linear:
    {to: toy.linear, adapt: {weight: transpose}, rename: {weight: w}, result: squeeze, reason: the weight lies the other way}
  torch.nn.functional.relu: {to: toy.relu}
  torch.maximum: {to: toy.maximum, promote: common_dtype, positional: [input, other], reason: one dtype}
  torch.sum: {to: toy.sum, rename: {dim: axis}}
  torch.topk: {to: adapters.topk}
  torch.nn.functional.interpolate: {to: toy.zoom, only: {mode: [nearest, area]}, reason: two modes}
  torch.clamp: {to: toy.clip, positional: [input, min, max], fill: {min: -9}, reason: a bound is needed}
  torch.Tensor.T: {to: toy.turned}
  torch.cumsum: {unsupported: its sums run the other way}
  torch.zeros: {to: toy.zeros}
  torch.nn.functional.dropout: {to: toy.dropout}
  torch.nn.functional.rrelu: {to: toy.rrelu, draws: true}
  torch.bernoulli: {to: toy.bernoulli, reason: what is asked holds for any generator}
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    (folder / "toy.py").write_text(
        "def transpose(x): ...\ndef squeeze(x): ...\ndef topk(input, k): ...\ndef common_dtype(x, y): ...\n"
    )
    return read_table(ROWS, "toy.yml", folder)


def program(*steps, inputs=2):
    placeholders = tuple(Step(PLACEHOLDER, f"t{i}", (SPEC,)) for i in range(inputs))
    last = inputs + len(steps) - 1
    return Program((), (*placeholders, *steps, Step(OUTPUT, "output", (Ref(last),))))


def call(target, *args, modes=(), **kwargs):
    return Step(CALL_FUNCTION, target, args, tuple(kwargs.items()), modes=modes)


def method(name, *args, **kwargs):
    return Step(CALL_METHOD, name, args, tuple(kwargs.items()))


def said(step):
    return step.target, step.args, dict(step.kwargs)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(method("add", X, Y), ("toy.plus", (), {"x": X, "y": Y}), id="renamed"),
        pytest.param(call("operator.add", 2, Y), ("toy.plus", (), {"x": 2, "y": Y}), id="a number on the left"),
        pytest.param(call("torch.add", X, Y, alpha=1.0), ("toy.plus", (), {"x": X, "y": Y}), id="a default is dropped"),
        pytest.param(method("add_", X, Y), ("toy.plus_", (), {"x": X, "y": Y}), id="in place, a method"),
        pytest.param(call("operator.iadd", X, Y), ("toy.plus_", (), {"x": X, "y": Y}), id="in place, an operator"),
        pytest.param(call("torch.sub", X, Y), ("toy.minus", (X, Y), {}), id="by position"),
        pytest.param(call("torch.rsub", X, 3), ("toy.minus", (3, X), {}), id="reflected, by position"),
        pytest.param(method("softmax", X, 0), ("toy.softmax", (), {"input": X, "axis": 0, "stable": True}), id="filled in"),
        pytest.param(
            call("torch.nn.functional.softmax", X), ("toy.softmax", (), {"input": X, "axis": -1, "stable": True}),
            id="filled in where nothing is given",
        ),
        pytest.param(method("sum", X, (0, 1), True), ("toy.sum", (), {"input": X, "axis": (0, 1), "keepdim": True}), id="kept"),
        pytest.param(call("torch.topk", X, 2), ("adapters.topk", (), {"input": X, "k": 2}), id="an adapter"),
        pytest.param(method("clamp", X, max=1), ("toy.clip", (X, -9, 1), {}), id="filled in before one by position"),
        pytest.param(call("torch.nn.functional.interpolate", X, 2, mode="area"),
                     ("toy.zoom", (), {"input": X, "size": 2, "mode": "area"}), id="one of the values allowed"),
        pytest.param(call("builtins.getattr", X, "T"), ("toy.turned", (), {"input": X}), id="an attribute"),
        pytest.param(call("builtins.getattr", X, "shape"), ("builtins.getattr", (X, "shape"), {}), id="every tensor's attribute"),
        pytest.param(
            call("operator.getitem", X, (0, Slice(1, None, None))),
            ("operator.getitem", (X, (0, Slice(1, None, None))), {}),
            id="an index",
        ),
        pytest.param(call("builtins.float", X), ("builtins.float", (X,), {}), id="a number"),
        pytest.param(call("torch.zeros", 2, 3, dtype=DType("int32")),
                     ("toy.zeros", (), {"size": (2, 3), "dtype": DType("int32")}), id="a dtype"),
        pytest.param(call("torch.bernoulli", X), ("toy.bernoulli", (), {"input": X}), id="random, and the table has it"),
    ],
)  # fmt: skip
def test_translated__a_call__goes_by_its_row(step, expected, table):
    found = translated(program(step), table)
    assert said(found.program.body[2]) == expected
    assert list(found.moved) == [0, 1, 2, 3]


def test_translated__adapters_of_an_argument_and_of_the_result__are_steps_around_the_call(table):
    steps = call("torch.nn.functional.linear", X, Y), call("torch.nn.functional.relu", Ref(2))
    found = translated(program(*steps), table)
    assert [said(step) for step in found.program.body[2:]] == [
        ("adapters.transpose", (Y,), {}),
        ("toy.linear", (), {"input": X, "w": Ref(2)}),
        ("adapters.squeeze", (Ref(3),), {}),
        ("toy.relu", (), {"input": Ref(4)}),
        ("output", (Ref(5),), {}),
    ]
    assert list(found.moved) == [0, 1, 4, 5, 6]


MAXIMUM = [
    ("adapters.common_dtype", (X, Y), {}),
    ("adapters.common_dtype", (Y, X), {}),
    ("toy.maximum", (Ref(2), Ref(3)), {}),
]


def test_translated__operands_that_are_promoted__go_through_the_adapter_with_the_others(table):
    found = translated(program(call("torch.maximum", X, Y)), table)
    assert [said(step) for step in found.program.body[2:-1]] == MAXIMUM


def test_translated__a_refusal_that_the_body_goes_on_after__is_that_of_the_call_and_not_of_the_promotion(table):
    steps = refused(call("torch.maximum", X, Y), "RuntimeError"), call("torch.nn.functional.relu", X)
    body = translated(program(*steps), table).program.body
    assert [said(step) for step in body[2:5]] == MAXIMUM
    assert [step.modes for step in body[2:6]] == [(), (), ("refuses:RuntimeError",), ()]


def test_translated__a_refusal_that_the_body_goes_on_after__in_several_steps__is_unsupported(table):
    steps = refused(call("torch.nn.functional.linear", X, Y), "RuntimeError"), call("torch.nn.functional.relu", X)
    with pytest.raises(UnsupportedError, match="is not translated to several steps"):
        translated(program(*steps), table)


def test_translated__modes_and_names__are_kept(table):
    steps = call("torch.nn.functional.linear", X, Y, modes=NO_GRAD)._replace(name="projected")
    body = translated(program(steps), table).program.body[2:5]
    assert [(step.modes, step.name) for step in body] == [(NO_GRAD, "projected")] * 3


def test_translated__parts_of_a_tuple__follow_it(table):
    found = translated(program(call("torch.topk", X, 2), call(UNPACK, Ref(2), 0)), table)
    assert said(found.program.body[3]) == (UNPACK, (Ref(2), 0), {})


REFUSED = [
    (call("torch.nn.functional.interpolate", X, 2, mode="bicubic"),
     "toy 1.0 has no counterpart of argument 'mode' of torch.nn.functional.interpolate, here 'bicubic': two modes",
     ("torch.nn.functional.interpolate", "mode")),
    (call("torch.mul", X, Y), "the table of toy 1.0 has no row for torch.mul.", ("torch.mul", "")),
    (method("cumsum", X, 0), "toy 1.0 has no counterpart of torch.cumsum: its sums run the other way", ("torch.cumsum", "")),
    (call("torch.add", X, Y, alpha=2), "toy 1.0 has no counterpart of argument 'alpha' of torch.add, here 2: no scale",
     ("torch.add", "alpha")),
    (call("torch.add", X, Y, alpha=Y), "argument 'alpha' of torch.add, here a tensor", ("torch.add", "alpha")),
    (method("sum_", X), "no in-place form of torch.sum.", ("torch.sum", "")),
    (call("torch.nn.functional.relu", X, inplace=True), "no in-place form of torch.nn.functional.relu.",
     ("torch.nn.functional.relu", "")),
    (call("torch.sum", X, out=Y), "toy 1.0 has no counterpart of argument 'out' of torch.sum, here a tensor", ("torch.sum", "out")),
    (call("torch.zeros", 2, requires_grad=True), "no counterpart of argument 'requires_grad' of torch.zeros, here True",
     ("torch.zeros", "requires_grad")),
    (call("builtins.getattr", X, "real"), "no row for torch.Tensor.real.", ("torch.Tensor.real", "")),
    (call("builtins.setattr", X, "data", Y), "no row for torch.Tensor.data.", ("torch.Tensor.data", "")),
    (call("torch.add", X, Y, modes=(autocast_mode("float16"),)), "autocast is not translated to toy 1.0", ("torch.autocast", "")),
    (call("torch.add", X, Y, modes=("hook",)), "hooks on gradients are not translated to toy 1.0", ("torch.Tensor.register_hook", "")),
]  # fmt: skip


@pytest.mark.parametrize(("step", "message", "names"), REFUSED, ids=[message[-50:] for _, message, _ in REFUSED])
def test_translated__without_counterpart__is_unsupported_and_named(step, message, names, table):
    with pytest.raises(UnsupportedError) as raised:
        translated(program(step), table)
    assert message in str(raised.value)
    assert (raised.value.operator, raised.value.argument) == names


ALIKE = 'framework: alike\nversion: "2"\nnamespace: other.flow\nlike_torch: true\noperators:\n'


ALIKE_ROWS = """
  torch.cumsum: {to: other.flow.sums, rename: {dim: axis}}
  torch.sort: {default: {stable: false}, rename: {dim: axis}, reason: never stable}
  torch.div: {default: {rounding_mode: null}, reason: no rounding}
"""


def alike(rows=""):
    return read_table(ALIKE + (rows or "  {}"), "alike.yml")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(call("torch.nn.functional.gelu", X), ("other.flow.nn.functional.gelu", (X,), {}), id="a function"),
        pytest.param(method("add_", X, Y, alpha=2), ("add_", (X, Y), {"alpha": 2}), id="a method"),
        pytest.param(call("operator.add", X, 2), ("operator.add", (X, 2), {}), id="an operator"),
        pytest.param(call("torch.stack", List((X, Y))), ("other.flow.stack", (List((X, Y)),), {}), id="a list"),
        pytest.param(call("torch.cumsum", X, 0), ("other.flow.sums", (), {"input": X, "axis": 0}), id="one with a row"),
        pytest.param(call("torch.nn.functional.linear", bias=None, weight=Y, input=X),
                     ("other.flow.nn.functional.linear", (X, Y), {}), id="what is needed goes by position"),
        pytest.param(call("torch.nn.functional.mse_loss", X, Y, size_average=None, reduction="sum", reduce=None, weight=None),
                     ("other.flow.nn.functional.mse_loss", (X, Y), {"reduction": "sum"}), id="defaults and deprecated arguments are not sent"),
        pytest.param(call("torch.zeros_like", X, memory_format=FrameworkConstant("torch.preserve_format")),
                     ("other.flow.zeros_like", (X,), {}), id="a default that torch's own code writes out"),
        pytest.param(call("torch.sort", X, stable=False, dim=1), ("other.flow.sort", (X,), {"axis": 1}), id="its own spelling"),
        pytest.param(method("sort", X, 1), ("sort", (X, 1), {}), id="its own spelling, a method"),
        pytest.param(method("type", X, DType("int32")), ("type", (X, DType("int32")), {}), id="what has no signature"),
        pytest.param(method("div_", X, Y, rounding_mode=None), ("div_", (X, Y), {}), id="in place, an argument dropped"),
        pytest.param(method("cumsum", X, 0), ("other.flow.sums", (), {"input": X, "axis": 0}), id="its method"),
        pytest.param(call("torch.nn.functional.dropout", X, 0.5, False),
                     ("other.flow.nn.functional.dropout", (X, 0.5, False), {}), id="one that draws nothing"),
    ],
)  # fmt: skip
def test_translated__like_torch__has_the_same_names_elsewhere(step, expected):
    table = alike(ALIKE_ROWS)
    found = translated(program(step._replace(seed=7)), table)
    assert said(found.program.body[2]) == expected
    assert list(found.moved) == [0, 1, 2, 3]


def test_translated__like_torch__an_argument_without_counterpart__is_unsupported():
    with pytest.raises(
        UnsupportedError,
        match=r"^alike 2 has no counterpart of argument 'stable' of torch\.sort, here True: never stable$",
    ):
        translated(program(method("sort", X, stable=True)), alike(ALIKE_ROWS))


@pytest.mark.parametrize(
    "step",
    [
        call("torch.rand", 2),
        call("torch.nn.functional.dropout", X),
        method("uniform_", X),
        call("torch.nn.init.normal_", X),
    ],
)
def test_translated__what_draws_from_a_generator__is_unsupported(step):
    with pytest.raises(UnsupportedError, match="draws random numbers, and alike 2 draws different"):
        translated(program(step._replace(seed=7)), alike())


def in_training():
    return recorded.nn.Sequential(recorded.nn.Dropout(0.5))(recorded.ones(3, requires_grad=True) * 1)


def dropping_nothing():
    return recorded.nn.Dropout(0.0)(recorded.ones(3, requires_grad=True) * 1)


def evaluated():
    module = recorded.nn.Dropout(0.5)
    module.eval()
    return module(recorded.ones(3, requires_grad=True) * 1)


def test_translated__an_argument_decides_whether_it_draws__is_answered_where_it_does_not(table):
    for step in (
        call("torch.nn.functional.dropout", X, 0.5, False),
        call("torch.nn.functional.rrelu", X, training=True),
    ):
        assert translated(program(step._replace(seed=7)), table).program.body[2].target.startswith("toy.")
    with pytest.raises(UnsupportedError, match="dropout draws random numbers, and toy 1"):
        translated(program(call("torch.nn.functional.dropout", X)._replace(seed=7)), table)


def test_translated__a_seed__stays_where_something_is_drawn(table):
    steps = [call("torch.bernoulli", X)._replace(seed=7), call("torch.nn.functional.relu", X)._replace(seed=8)]
    assert [step.seed for step in translated(program(*steps), table).program.body[2:4]] == [7, None]


SAME = """
framework: alike
version: "2"
namespace: other.flow
like_torch: true
same_generator: [torch.rand, torch.nn.functional.dropout]
"""


@pytest.mark.parametrize("step", [call("torch.rand", 3), call("torch.nn.functional.dropout", X)])
def test_translated__a_generator_that_is_torchs_own__draws_after_the_same_seed(step):
    table = read_table(SAME, "alike.yml")
    found = translated(program(step._replace(seed=7)), table).program.body[2]
    assert (found.target.startswith("other.flow."), found.seed) == (True, 7)


@pytest.mark.parametrize(
    "step", [call("torch.randn", 3), call("torch.rand", 3, dtype=DType("bfloat16"))], ids=["another", "of 16 bits"]
)
def test_translated__a_generator_that_is_torchs_own_elsewhere__is_unsupported(step):
    with pytest.raises(UnsupportedError, match="draws random numbers"):
        translated(program(step._replace(seed=7)), read_table(SAME, "alike.yml"))


def test_translated__a_module_that_draws__is_unsupported_in_training_alone():
    with pytest.raises(UnsupportedError, match=r"^torch\.nn\.Sequential draws random numbers"):
        translated(record(in_training).program, alike())
    for body in (dropping_nothing, evaluated):
        targets = [step.target for step in translated(record(body).program, alike()).program.steps]
        assert "other.flow.nn.Dropout" in targets


def test_translated__a_module_class_with_a_row__is_constructed_by_it():
    def body():
        return recorded.nn.Linear(3, 2)(recorded.ones(3))

    table = alike("  torch.nn.Linear: {to: other.flow.Dense, rename: {in_features: inner, out_features: outer}}")
    found = Translator(table).translated(record(body).program)
    assert said(found.program.setup[0]) == ("other.flow.Dense", (), {"inner": 3, "outer": 2})
    assert found.program.setup[0].in_setup
    assert [step.in_setup for step in found.program.steps] == [True] * len(found.program.setup) + [False] * len(
        found.program.body
    )
