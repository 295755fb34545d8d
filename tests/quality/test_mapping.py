"""The shipped suite through the mapping: translated to torch itself, every program gives the bits that it gave."""

from __future__ import annotations

import importlib

import pytest
import torch

from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.mapping.table import MappingRow, MappingTable, load_table
from ci_autotest.backends.framework.mapping.translation import Translator
from ci_autotest.backends.operators.argument_binding import respelled
from ci_autotest.backends.operators.signatures import forms, resolved
from ci_autotest.discovery import families
from ci_autotest.errors import UnsupportedError
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, UNPACK
from ci_autotest.record.declaration import declaration_of
from ci_autotest.record.draw.profiles import ORDINARY
from tests.engine import record

#: Operators that draw: other generators give other numbers, so none of them is translated without a row.
DRAWN = frozenset({
    "torch.bernoulli", "torch.rand", "torch.randn", "torch.randn_like", "torch.randint", "torch.randperm", "torch.multinomial", "torch.normal",
    "torch.Tensor.uniform_", "torch.nn.functional.dropout", "torch.nn.functional.dropout1d", "torch.nn.functional.dropout2d",
    "torch.nn.functional.gumbel_softmax", "torch.nn.functional.fractional_max_pool3d",
})  # fmt: skip
#: Functions that take their tensors one by one: an adapter's business.
GATHERING = frozenset({
    "torch.einsum", "torch.meshgrid", "torch.cartesian_prod", "torch.block_diag", "torch.atleast_1d", "torch.atleast_2d",
    "torch.atleast_3d", "torch.broadcast_tensors",
})  # fmt: skip
#: What no function of torch answers by the names in its documentation.
UNNAMED = frozenset({"torch.Tensor.mT", "torch.Tensor.copy_", "torch.autocast"})
#: Its residuals of a square system are not defined.
UNDEFINED = frozenset({"matrices::lstsq"})


def attempts(family):
    module = importlib.import_module(f"ci_autotest.suite.{family}")
    for name, value in vars(module).items():
        declaration = declaration_of(value)
        for case in range(2) if declaration is not None else ():
            test = f"{family}::{name}"
            attempt = record(declaration.body, case, test=test, profile=ORDINARY if case == 0 else None)
            if attempt.refused is None and test not in UNDEFINED:
                yield test, case, attempt


def run(program, attempt):
    return TorchBackend().run(program, attempt.sources)


def bits(value):
    if isinstance(value, torch.Tensor):
        dense = value.detach().resolve_conj().resolve_neg().contiguous()
        data = dense.view(torch.int16) if dense.dtype is torch.bfloat16 else dense
        return value.dtype, tuple(value.shape), data.numpy().tobytes()
    return tuple(map(bits, value)) if isinstance(value, tuple | list) else repr(value)


def differing(attempt, found):
    """Return what a translated program gives otherwise, by the original's targets."""
    ours, theirs = run(found.program, attempt), run(attempt.program, attempt)
    if ours.failure is not None:
        return [str(ours.failure)]
    return [
        attempt.program.steps[i].target
        for i, place in enumerate(found.moved)
        if place >= 0
        and not isinstance(theirs.values[i], torch.nn.Module)
        and bits(ours.values[place]) != bits(theirs.values[i])
    ]


def compared(family, translator):
    """Return how many of a family's cases were compared, what differed, and what was unsupported."""
    count, wrong, refused = 0, [], set()
    for test, case, attempt in attempts(family):
        try:
            found = translator.translated(attempt.program, attempt.sources)
        except UnsupportedError as error:
            refused.add(error.operator)
            continue
        count += 1
        wrong += [(test, case, name) for name in differing(attempt, found)]
    return count, wrong, refused


#: Families of calls with `out=`, which a table of functions has no counterpart of.
OUT = frozenset({"call_forms"})
#: Families of what must be refused: there are no bits to compare.
REFUSED = frozenset({"autograd"})


@pytest.mark.parametrize("family", families())
def test_suite__translated_for_another_torch__gives_the_same_bits(family):
    count, wrong, refused = compared(family, Translator(load_table("torch")))
    assert (wrong, refused - DRAWN) == ([], set())
    assert count or family in {"randomness", *REFUSED}


class EveryOperator(dict):
    """Rows that answer each operator by torch's function of that name, every argument by its documented name."""

    def get(self, operator, default=None):
        bare = operator.rpartition(".")[2]
        if operator in UNNAMED:
            return default
        if operator in {"torch.Tensor.__getitem__", "torch.Tensor.__setitem__", UNPACK} or bare in {
            "shape",
            "ndim",
            "dtype",
        }:
            return default
        if bare in {"real", "imag"}:
            return MappingRow(to=f"torch.{bare}")  # attributes, and functions too
        if operator.startswith("builtins.") or operator in GATHERING or resolved(operator) is None:
            return default
        found = forms(operator.removeprefix("torch.Tensor."), CALL_METHOD if "Tensor" in operator else CALL_FUNCTION)
        is_first = "Tensor" in operator or {respelled(operator, form[0].name) for form in found if form} == {"input"}
        written = f"torch.Tensor.{bare.rstrip('_')}_"
        return MappingRow(to=operator, inplace=written, positional=("input",) if is_first else ())


@pytest.mark.parametrize("family", families())
def test_suite__bound_and_lowered__gives_the_same_bits(family):
    table = MappingTable("named", "", "torch", like_torch=False, rows=EveryOperator())
    count, wrong, refused = compared(family, Translator(table))
    assert wrong == []
    assert family in OUT or refused <= GATHERING | DRAWN | UNNAMED
    assert count or family in REFUSED


def test_differing__a_program_with_an_argument_lost__is_seen():
    """A planted fault: what the two tests above compare can say no."""
    seen = []
    for _, _, attempt in attempts("activations"):
        found = Translator(load_table("torch")).translated(attempt.program, attempt.sources)
        steps = [step._replace(kwargs=()) for step in found.program.body]
        broken = found._replace(program=type(found.program)(found.program.setup, tuple(steps)))
        if any(step.kwargs for step in found.program.body):
            seen += differing(attempt, broken)
    assert {"torch.nn.functional.softplus", "torch.nn.functional.leaky_relu"} <= set(seen)
