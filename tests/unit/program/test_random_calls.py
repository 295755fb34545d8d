"""Which calls draw random numbers: what the table says is in torch's signatures, and layers that drop elements."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from torch import nn

from ci_autotest import random_tensor
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, OUTPUT, List, Program, Ref, Step
from ci_autotest.program.random_calls import _QUIET, _SHARES, draws, seeds_of
from tests.engine import judged, record

PARAMETERS = List((Ref(1), Ref(2)))
OF_FUNCTIONAL = {
    name: rows for name, rows in _QUIET.items()
    if hasattr(nn.functional, name) and name not in {"scaled_dot_product_attention", "native_dropout"}
}  # fmt: skip


@pytest.mark.parametrize("name", OF_FUNCTIONAL)
def test_quiet_argument__of_the_functional__is_in_its_signature(name: str):
    parameters = list(inspect.signature(getattr(nn.functional, name)).parameters.values())
    for row in OF_FUNCTIONAL[name]:
        found = parameters[row.position]
        assert found.name == row.name
        assert found.default in {row.default, inspect.Parameter.empty}


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "expected"),
    [
        ("torch.sin", (), {}, False),
        ("uniform_", (Ref(0),), {}, True),
        ("torch.dropout", (Ref(0), 0.5), {"train": False}, False),
        ("torch.nn.functional.dropout", (Ref(0), 0.5), {"training": False}, False),
        ("torch.nn.functional.dropout", (Ref(0),), {"p": 0.0}, False),
        ("torch.nn.functional.dropout", (Ref(0),), {}, True),
        ("torch.nn.functional.rrelu", (Ref(0),), {}, False),
        ("torch.ops.aten.native_dropout.default", (Ref(0), 0.5, True), {}, True),
        ("torch.ops.aten.rrelu_with_noise.default", (Ref(0), Ref(1), 0.1, 0.3, False), {}, False),
        ("torch.nn.functional.scaled_dot_product_attention", (Ref(0), Ref(1), Ref(2)), {}, False),
        ("torch.lstm", (Ref(0), (Ref(3), Ref(4)), PARAMETERS, True, 2, 0.5, True, False, False), {}, True),
        ("torch.lstm", (Ref(0), (Ref(3), Ref(4)), PARAMETERS, True, 2, 0.5, False, False, False), {}, False),
        ("torch.lstm", (Ref(0), (Ref(3), Ref(4)), PARAMETERS), {"num_layers": 2, "dropout": 0.5, "train": True}, True),
        ("torch.lstm", (Ref(0), (Ref(3), Ref(4)), PARAMETERS, True, 2), {"dropout": 0.5, "train": False}, False),
        ("lstm", (Ref(0),), {}, False),
        ("lstm", (Ref(0),), {"training": True, "dropout_p": 0.0}, False),
        ("lstm", (Ref(0),), {"training": True, "dropout_p": 0.5}, True),
        ("lstm", (Ref(0), (Ref(3), Ref(4))), {"training": True}, False),
        ("torch.gru", (Ref(0), Ref(3), PARAMETERS, True, 1, 0.5, True, False, False), {}, False),
        ("torch.gru", (Ref(0), Ref(5), Ref(3), PARAMETERS, True, 3, 0.5, True, False), {}, True),
    ],
)
def test_draws__by_the_arguments_of_a_call(target: str, args: Any, kwargs: Any, expected: bool):
    assert draws(target, args, kwargs) is expected


def program(*layers: tuple[str, tuple[Any, ...], dict[str, Any]], modes: tuple[Step, ...] = ()) -> Program:
    """Return a call of the last layer, of which the others are parts."""
    count = len(layers)
    setup = [
        Step(CALL_FUNCTION, f"torch.nn.{name}", args, tuple(kwargs.items()), "module", in_setup=True)
        for name, args, kwargs in layers
    ]
    at = count + len(modes)
    body = (
        Step(CALL_MODULE, "torch.nn.X", (Ref(count - 1), Ref(count - 1)), seed=7),
        Step(OUTPUT, "output", (Ref(at),)),
    )
    return Program((*setup, *modes), body)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([("Dropout", (), {})], True),
        ([("Dropout", (0.0,), {})], False),
        ([("Dropout", (), {"p": 0.5}), ("Sequential", (Ref(0),), {})], True),
        ([("Linear", (2, 2), {}), ("Sequential", (Ref(0),), {})], False),
        ([("LSTM", (2, 2, 2), {"dropout": 0.5})], True),
        ([("LSTM", (2, 2, 1), {"dropout": 0.5})], False),
        ([("LSTM", (2, 2), {})], False),
        ([("MultiheadAttention", (4, 2, 0.1), {})], True),
        ([("MultiheadAttention", (4, 2), {})], False),
        ([("TransformerEncoderLayer", (4, 2), {})], True),
        ([("TransformerEncoderLayer", (4, 2), {"dropout": 0})], False),
        ([("RReLU", (), {})], True),
        ([("FractionalMaxPool2d", (2, 2), {})], True),
    ],
)
def test_seeds_of__call_of_a_module__goes_by_its_constructor(layers: Any, expected: bool):
    found = program(*layers)
    assert seeds_of(found) == ({len(layers): 7} if expected else {})


@pytest.mark.parametrize(
    ("name", "target", "args", "expected"),
    [
        ("Dropout", "eval", (), False),
        ("Dropout", "train", (False,), False),
        ("Dropout", "train", (), True),
        ("FractionalMaxPool2d", "eval", (), True),
    ],
)
def test_seeds_of__mode_of_the_module__decides(name: str, target: str, args: Any, expected: bool):
    mode = Step(CALL_METHOD, target, (Ref(0), *args), in_setup=True)
    assert bool(seeds_of(program((name, (2, 2) if name[0] == "F" else (), {}), modes=(mode,)))) is expected


@pytest.mark.parametrize("name", _SHARES)
def test_shares__are_in_torchs_signatures(name: str):
    position, keyword, default = _SHARES[name]
    # Recurrent layers hand their arguments on: the first says which of them it is.
    is_recurrent = name in {"LSTM", "GRU", "RNN"}
    parameters = list(
        inspect.signature((nn.RNNBase if is_recurrent else getattr(nn, name)).__init__).parameters.values()
    )
    found = parameters[position + (2 if name in {"LSTM", "GRU"} else 1)]
    assert (found.name, found.default) == (keyword, default)


@pytest.mark.parametrize(
    "layer",
    [nn.LSTM(3, 4, 2, dropout=0.5), nn.GRU(3, 4, 2, dropout=0.5), nn.RNN(3, 4, 2, dropout=0.5), nn.LSTM(3, 4, 2, dropout=0.5).eval()],
)  # fmt: skip
def test_record__recurrent_layer_of_the_author_that_drops_elements__is_aligned(layer: nn.RNNBase):
    attempt = record(lambda: layer(random_tensor(dims=(5, 2, 3)))[0])
    assert any(step.seed for step in attempt.program.steps) is layer.training
    assert judged(attempt, TorchBackend()).verdict.outcome == "aligned"
