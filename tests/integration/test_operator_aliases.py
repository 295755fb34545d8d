"""Aliases of operators are those that torch has, and every spelling of one is answered by the replacement of another."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch

from ci_autotest.backends.operators.argument_binding import respelled
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.operators.signatures import forms, resolved
from ci_autotest.backends.substitute.backend import Replacing
from ci_autotest.opinfo.database import entries
from ci_autotest.program.ir import CALL_FUNCTION
from ci_autotest.values.operator_aliases import ALIASES, names_of

NAMESPACES = ("torch", "torch.special", "torch.linalg", "torch.nn.functional", "torch.Tensor")
#: The beginning of a documentation; further on, it may say so of an argument.
DOCUMENTED = re.compile(r"(?s)\A.{,120}?\bAlias (?:for|of) :\w+:`~?(?:torch\.)?([\w.]+)")
#: What torch calls an alias and is an operator of its own here.
OWN = {
    "torch.pinverse": "its default tolerance is another than that of torch.linalg.pinv",
    "torch.linalg.diagonal": "its default dimensions are others than those of torch.diagonal",
    "torch.maximum": "it is one of several forms of torch.max",
    "torch.minimum": "it is one of several forms of torch.min",
    "torch.special.gammaln": "its documentation calls it no alias of torch.lgamma, and frameworks have both",
}
X = torch.eye(2) + 0.5
#: Arguments of which one list fits each alias.
ARGUMENTS = ((X,), (X, X), (X, 2), (X, 0, 1), ((X, X),), (X[0], X[0]))


def torchs_own() -> set[tuple[str, str]]:
    """Return (alias, operator) of torch's documentation and of its operator database."""
    listed = [(each.name, entry.info.name) for entry in entries().values() for each in entry.info.aliases]
    found = {(f"torch.{alias.removeprefix('torch.')}", f"torch.{of}") for alias, of in listed}
    for namespace in NAMESPACES:
        owner = resolved(namespace) if namespace != "torch" else torch
        for name in dir(owner):
            alias = DOCUMENTED.match(str(getattr(getattr(owner, name, None), "__doc__", "")))
            if alias is not None:
                found.add((f"{namespace}.{name}", f"torch.{alias[1]}"))
    return {(alias, of) for alias, of in found if callable(resolved(alias)) and callable(resolved(of))}


def test_operator_of__torchs_own_aliases__are_the_operator_or_left_out_with_a_reason():
    known = torchs_own()

    assert len(known) > 60
    assert {alias for alias, of in known if operator_of(alias) != operator_of(of)} == set(OWN)


def test_aliases__each__is_torchs_own():
    spelled = {alias.rpartition(".")[2] for alias, _ in torchs_own()}

    # `rsub` is `sub` with the operands exchanged.
    assert {alias for alias in ALIASES if alias.rpartition(".")[2] not in spelled} == {"rsub"}


@pytest.mark.parametrize("alias", ALIASES)
def test_replacing__alias__answers_every_spelling(alias):
    replaced = operator_of(f"torch.{alias}")
    functions = [(name, resolved(name)) for name in names_of(replaced) if operator_of(name) == replaced]
    existing = {name: function for name, function in functions if callable(function)}

    assert f"torch.{alias}" in existing or f"torch.special.{alias}" in existing or f"torch.Tensor.{alias}" in existing
    assert [name for name, function in existing.items() if not is_answered(function, replaced)] == []


@pytest.mark.parametrize("alias", sorted({*ALIASES} - {"nelement", "ndimension"}))
def test_respelled__arguments_of_an_alias__are_those_of_the_operator(alias):
    target = next(f"{space}.{alias}" for space in NAMESPACES if callable(resolved(f"{space}.{alias}")))

    assert documented(target) - documented(operator_of(target)) == set()


def documented(target: str) -> set[str]:
    return {respelled(target, parameter.name) for form in forms(target, CALL_FUNCTION) for parameter in form}


def is_answered(function, replaced) -> bool:
    for arguments in ARGUMENTS:
        with contextlib.suppress(TypeError), Replacing({replaced: lambda *_, **__: "mine"}) as mode:
            return function(*arguments) == "mine" and mode.counts == {replaced: 1}
    return False
