"""A declared scope is read into a value; one that names what does not exist is refused with what to write."""

from __future__ import annotations

import pytest

from ci_autotest.config import decode
from ci_autotest.errors import ConfigError
from ci_autotest.kinds import PROFILES, SubstituteCandidate
from ci_autotest.record.draw import profiles
from ci_autotest.values.kernel_scope import KernelScope

REPLACE = {"torch.softmax": "mine.softmax", "torch.exp": "mine.exp"}


def row(**keys):
    return {"candidates": [{"name": "k", "backend": "substitute", "replace": REPLACE, **keys}]}


def test_scope__row_with_every_key__holds_all_of_them():
    keys = {
        "forward_only": ["torch.exp"],
        "dtypes": ["float16"],
        "profiles": ["ordinary"],
        "devices": ["cuda"],
        "writes": ["input"],
    }
    found = decode(row(**keys, layouts=["contiguous"]), "autotest.yml").candidates[0].scope
    assert found == KernelScope(("torch.exp",), ("float16",), ("ordinary",), ("contiguous",), ("cuda",), ("input",))


@pytest.mark.parametrize(("given", "operators"), [(True, tuple(REPLACE)), (False, ()), ([], ())], ids=str)
def test_scope__forward_only__is_true_for_all_or_lists_operators(given, operators):
    assert decode(row(forward_only=given), "autotest.yml").candidates[0].scope.forward_only == operators


def test_profiles__of_the_configuration__are_those_that_are_drawn():
    assert set(PROFILES) == {profiles.ORDINARY, *profiles.PROFILES}


WRONG = {
    "no such dtype": ({"dtypes": ["flaot16"]}, "has dtypes: 'flaot16', which does not exist. Did you mean 'float16'?"),
    "no such profile": ({"profiles": ["zero_sizes"]}, "'zero_sizes', which does not exist. Did you mean 'zero_size'?"),
    "not replaced": ({"forward_only": ["torch.sofmax"]}, "which it does not replace. Did you mean 'torch.softmax'?"),
    "device with an index": ({"devices": ["cuda:0"]}, "has devices: 'cuda:0'. Write kinds of devices"),
    "layout": ({"layouts": ["strided"]}, "layouts"),
    "one operator as text": (
        {"forward_only": "torch.exp"},
        "forward_only is text; true or false or a list is expected",
    ),
    "opcheck of another backend": (
        {"backend": "torch", "replace": {}, "opcheck": True},
        "has 'opcheck', which backend torch does not use",
    ),
    "writes of another backend": (
        {"backend": "torch", "replace": {}, "writes": ["input"]},
        "has 'writes', which backend torch does not use",
    ),
    "devices of another backend": (
        {"backend": "torch", "replace": {}, "devices": ["cuda"]},
        "has 'devices', which backend torch does not use",
    ),
}


@pytest.mark.parametrize(("keys", "message"), WRONG.values(), ids=WRONG)
def test_decode__wrong_scope__is_refused(keys, message):
    with pytest.raises(ConfigError) as caught:
        decode(row(**keys), "autotest.yml")
    assert message in str(caught.value)


def test_scope__candidate_without_one__is_everything():
    assert SubstituteCandidate(name="k", replace=REPLACE).scope == KernelScope()
