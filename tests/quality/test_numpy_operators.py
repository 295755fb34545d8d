"""Operators whose reference is a function of NumPy arrays, and such functions as candidates."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch as real

from ci_autotest import operator, random_tensor, torch
from ci_autotest.backends.operators.user_operators import find
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.errors import AuthorError
from ci_autotest.record.user_operators import RecordedOperator
from tests.engine import record, tried

if TYPE_CHECKING:
    from collections.abc import Callable


@operator(reference="numpy")
def erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


@operator(reference="numpy", gradient=lambda cotangent, x, scale: cotangent * scale * np.cos(x * scale))
def sine(x: Any, scale: float) -> Any:
    return np.sin(x * scale)


@operator(reference="numpy", gradient="differences")
def divided(x: Any, y: Any) -> Any:
    return x / (1 + y * y)


@operator(reference="numpy", gradient=lambda cotangent, x, y: cotangent)
def summed(x: Any, y: Any) -> Any:
    return x + y


def kernel(operator: str, function: Callable[..., Any]) -> SubstituteBackend:
    backend = SubstituteBackend({})
    backend.functions = {f"{__name__}.{operator}": function}
    return backend


def tensor() -> Any:
    return random_tensor(2, 3, 4, low=1, high=2)


RIGHT = {
    "no gradient": (lambda: erf(tensor()), kernel("erf", real.special.erf)),
    "no gradient, forward only": (lambda: erf(tensor()), kernel("erf", lambda x: real.special.erf(x.detach()))),
    "formula": (lambda: sine(tensor(), 2.0), kernel("sine", lambda x, scale: real.sin(x * scale))),
    "differences": (lambda: divided(tensor(), tensor()), kernel("divided", lambda x, y: x / (1 + y * y))),
}
WRONG = {
    "value": (lambda: erf(tensor()), kernel("erf", lambda x: real.special.erf(x) * 1.001), "value"),
    "gradient of a formula": (
        lambda: sine(tensor(), 2.0), kernel("sine", lambda x, scale: real.sin(x * scale) + 1e-3 * (x - x.detach())),
        "gradient",
    ),
    "gradient of differences": (
        lambda: divided(tensor(), tensor()),
        kernel("divided", lambda x, y: x / (1 + y * y) + 1e-3 * (y - y.detach())), "gradient",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "backend"), RIGHT.values(), ids=RIGHT)
def test_operator__of_arrays__right_kernel_is_aligned(body: Callable[[], object], backend: SubstituteBackend):
    for case in range(4):
        assert tried(body, backend, case=case).outcome == "aligned"


@pytest.mark.parametrize(("body", "backend", "kind"), WRONG.values(), ids=WRONG)
def test_operator__of_arrays__wrong_kernel_is_found(body: Callable[[], object], backend: SubstituteBackend, kind: str):
    verdict = tried(body, backend)
    assert (verdict.kind, verdict.blame) == (kind, "candidate")
    assert verdict.operator in backend.functions


@operator(reference="numpy")
def returning(value):
    return None if value.size else value


@operator(reference="numpy")
def mixed(value):
    return value, "text"


@operator(reference="numpy", gradient=lambda cotangent: cotangent)
def halved(value):
    return value / 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda: returning(tensor()), "returning returned None, which is no array of numbers. Return arrays."),
        (lambda: mixed(tensor()), "mixed returned 'text', which is no array of numbers."),
        (lambda: halved(tensor()), "gradient= of halved raised TypeError: "),
    ],
)
def test_operator__standard_that_does_not_work__is_an_error_of_the_test(body: Callable[[], object], said: str):
    with pytest.raises(AuthorError, match=re.escape(said)):
        record(body)


def test_operator__wrong_number_of_gradients__is_an_error_of_the_test():
    with pytest.raises(AuthorError, match=r"gradient= of summed returns shape .3, 4.; the tensor arguments have"):
        record(lambda: summed(tensor(), tensor()))


@pytest.mark.parametrize(
    ("dtype", "name"), [(real.float16, "float16"), (real.bfloat16, "bfloat16"), (real.float64, "float64")]
)
def test_operator__of_arrays__returns_the_dtype_of_its_arguments(dtype: real.dtype, name: str):
    assert str(erf(real.ones(2, dtype=dtype)).dtype) == f"torch.{name}"


def test_load_function__of_numpy__takes_tensors_and_is_forward_only():
    backend = SubstituteBackend({"torch.exp": "numpy.exp"})
    assert tried(lambda: torch.exp(tensor()) * 2, backend).outcome == "aligned"
    assert tried(lambda: torch.exp(tensor()) * 2, SubstituteBackend({"torch.exp": "numpy.exp2"})).kind == "value"
    assert backend.mode == "forward only where it takes arrays"


def test_operator__body_calls_torch_of_the_package__is_one_step():
    body = SimpleNamespace(calls=0)

    def twice(x: Any) -> Any:
        body.calls += 1
        return torch.add(x, x)

    doubled = RecordedOperator(f"{__name__}.doubled", twice)
    program = record(lambda: doubled(tensor())).program
    assert [step.target for _, step in program.calls] == [f"{__name__}.doubled"]
    assert body.calls == 1
    assert find(f"{__name__}.erf") is erf


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"reference": "jax"}, r"@operator\(reference='jax'\): write 'torch' or 'numpy'"),
        ({"gradient": "differences"}, "has the gradient of autograd"),
        ({"reference": "numpy", "gradient": "numeric"}, "with reference='numpy', give a function or 'differences'"),
    ],
    ids=["reference", "gradient of torch", "gradient"],
)
def test_operator__option_without_such_a_value__is_refused(given: dict[str, Any], message: str):
    with pytest.raises(AuthorError, match=message):
        operator(**given)


@pytest.mark.parametrize("thing", [lambda x: x, real.nn.Linear, 3], ids=["local", "class", "number"])
def test_operator__no_function_of_a_module__is_refused(thing: Any):
    with pytest.raises(AuthorError, match="Define the function at the top level of a module"):
        operator(thing)
