"""The type that a built-in function asks for: from the overloads that the other arguments match."""

from __future__ import annotations

import pytest

from ci_autotest import oneof, random, random_bool, random_tensor, torch
from ci_autotest.backends.operators.signatures import overloads
from ci_autotest.errors import AuthorError
from ci_autotest.record.arguments import RECEIVER, Deferred
from tests.engine import record

N = random(1, 3)


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "key", "expected"),
    [
        pytest.param("torch.sum", (RECEIVER, N), {}, 1, [int], id="a dim, positional"),
        pytest.param("torch.sum", (RECEIVER,), {"dim": N}, "dim", [int], id="a dim, keyword"),
        pytest.param("torch.sum", (RECEIVER,), {"axis": N}, "axis", [int], id="numpy's spelling"),
        pytest.param("torch.sum", (RECEIVER,), {"dim": 0, "keepdim": N}, "keepdim", [bool], id="a flag"),
        pytest.param("sum", (RECEIVER, N), {}, 1, [int], id="a method"),
        pytest.param("torch.add", (RECEIVER, N), {}, 1, [int | float], id="a number: either"),
        pytest.param("torch.add", (RECEIVER, RECEIVER), {"alpha": N}, "alpha", [int | float], id="alpha"),
        pytest.param("torch.linalg.matrix_power", (RECEIVER, N), {}, 1, [int], id="linalg"),
        pytest.param("torch.fft.fft", (RECEIVER,), {"n": N}, "n", [int], id="fft"),
        pytest.param("torch.special.polygamma", (N, RECEIVER), {}, 0, [int], id="special"),
        pytest.param("torch.nn.functional.avg_pool2d", (RECEIVER, N), {}, 1, [int], id="one size for both"),
        pytest.param(
            "torch.nn.functional.conv2d", (RECEIVER, RECEIVER), {"padding": N}, "padding", [int], id="not text"
        ),
        pytest.param("torch.nn.functional.gelu", (RECEIVER,), {"approximate": N}, "approximate", [], id="text alone"),
        pytest.param("view", (RECEIVER, N, 3), {}, 1, [int], id="sizes in a row"),
        pytest.param("torch.quantile", (RECEIVER, N), {}, 1, [float], id="a float"),
        pytest.param("torch.var", (RECEIVER, N), {"unbiased": True}, 1, [int], id="overloads that agree"),
        pytest.param("torch.clamp", (RECEIVER,), {"min": N, "max": RECEIVER}, "min", [], id="a tensor beside"),
        pytest.param("torch.nothing_like_it", (RECEIVER, N), {}, 1, [], id="no schema"),
        pytest.param("torch.sum", (RECEIVER, "no", N), {}, 2, [], id="no overload matches"),
        pytest.param("torch.var", (RECEIVER, N), {}, 1, [bool, int], id="overloads that disagree"),
    ],
)
def test_candidates__table(target, args, kwargs, key, expected):
    assert Deferred(target, args, kwargs, key).candidates() == expected


def test_resolve__several_types__cannot_be_told():
    assert Deferred("torch.var", (RECEIVER, N), {}, 1).resolve() is None
    with pytest.raises(AuthorError, match=r"argument 1 of torch\.var: the type of random\(1, 3\) is unknown"):
        record(lambda: torch.var(random_tensor(ndim=3), random(1, 3)))


def test_overloads__function_with_out__leaves_out_what_writes_to_it():
    assert not any(parameter.name == "out" for overload in overloads("torch.sum") for parameter in overload)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: torch.sum(x, dim=random(0, 3), keepdim=random_bool()),
        lambda x: x.sum(random(0, 3)),
        lambda x: x + random(1, 3),
        lambda x: random(1, 3) * x,
        lambda x: x ** random(1, 3),
        lambda x: torch.transpose(x, random(-3, 3), oneof(0, random(1, 3))),
        lambda x: torch.roll(x, shifts=random(-4, 5), dims=random(0, 3)),
        lambda x: torch.nn.functional.avg_pool1d(x, 1, padding=random(0, 1)),
        lambda x: torch.diff(x, n=random(0, 2)),
        lambda x: torch.quantile(x, random(0, 1)),
        lambda x: torch.cat([x, x])[random(0, 2)],
    ],
    ids=range(11),
)
def test_random__built_in_function__needs_no_type(body):
    assert all(record(lambda: body(random_tensor(ndim=3)), case).refused is None for case in range(0, 20, 2))


def test_random__number__is_drawn_as_either():
    kinds = {
        type(record(lambda: random_tensor(ndim=1) + random(1, 3), case).program.calls[0][1].args[1])
        for case in range(0, 40, 2)
    }
    assert kinds == {int, float}


def test_random__typed_by_a_schema_and_shared__is_one_value():
    def body():
        dim = random(0, 3)
        x = random_tensor(ndim=3)
        return torch.softmax(x, dim), torch.sum(x, dim=dim)

    for case in range(0, 20, 2):
        steps = [step for _, step in record(body, case).program.calls]
        assert steps[0].args[1] == dict(steps[1].kwargs)["dim"]
