"""What OneFlow's test files get for what they import."""

from __future__ import annotations

import importlib
import re
import sys
import types
import unittest

import pytest
import torch

from ci_autotest import random_tensor
from ci_autotest.compat.foreign_file import answering
from ci_autotest.compat.missing_names import MissingName
from ci_autotest.compat.oneflow_modules import AnsweredModule, answer
from ci_autotest.compat.oneflow_modules import recording as torch_of_files
from ci_autotest.compat.oneflow_names import NAMES, nothing, random
from ci_autotest.errors import AuthorError, UnsupportedReason
from tests.engine import record


def imported(name: str):
    with answering(answer):
        return importlib.import_module(name)


def test_answer__names_of_other_packages__are_left_to_them():
    assert [answer(name) for name in ("torch", "oneflow_onnx", "test_utils", "numpy.random")] == [None] * 4


@pytest.mark.parametrize(
    "name", ["oneflow", "oneflow.unittest", "oneflow.test_utils.automated_test_util", "automated_test_util"]
)
def test_import__of_the_harness__is_answered_and_forgotten(name: str):
    module = imported(name)
    assert module is answer(name)
    assert name not in sys.modules


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("oneflow.float32", torch.float32),
        ("oneflow.Tensor", torch.Tensor),
        ("oneflow.nn.Module", torch.nn.Module),
        ("oneflow.nn.common_types._size_2_t", torch.nn.common_types._size_2_t),
        ("oneflow.test_utils.automated_test_util.random_tensor", NAMES["random_tensor"]),
        ("oneflow.test_utils.automated_test_util.generators.nothing", NAMES["nothing"]),
    ],
)
def test_answer__name_that_torch_or_we_have__is_that_name(path: str, found: object):
    module, _, name = path.rpartition(".")
    assert getattr(imported(module), name) is found


def test_answer__function_of_torch__is_the_recording_one():
    assert [repr(imported(path).relu) for path in ("oneflow", "oneflow._C", "oneflow.nn.functional")] == [
        "<recording torch.relu>", "<recording torch.relu>", "<recording torch.nn.functional.relu>",
    ]  # fmt: skip


def test_answer__version__is_that_of_the_names():
    assert imported("oneflow").__version__ == "0.9.0"


def test_missing_name__outside_of_a_test__costs_no_file():
    flow = imported("oneflow")
    missing = flow.framework.session.config
    assert isinstance(missing, MissingName)
    assert isinstance(missing(1).more[0], MissingName)
    assert (list(missing), len(missing), bool(missing)) == ([], 0, True)

    @flow.some.decorator
    def decorated():
        return 3

    class Graph(flow.nn.Graph):
        def build(self):
            return 4

    assert (decorated(), Graph().build()) == (3, 4)


def test_star_import__name_that_torch_lacks__costs_no_file():
    torch_of_star = imported("oneflow.test_utils.automated_test_util").torch
    missing = torch_of_star.nn.functional.no_such_function
    assert repr(missing) == "<torch.nn.functional.no_such_function, which torch does not have>"
    assert repr(torch_of_star.nn.functional.relu) == "<recording torch.nn.functional.relu>"


def test_manual_seed__in_a_test__has_no_effect():
    flow, torch_of_star = imported("oneflow"), imported("oneflow.test_utils.automated_test_util").torch

    def body():
        flow.manual_seed(1)
        torch_of_star.manual_seed(1)
        return torch_of_star.rand(2) + random_tensor(1, 2)

    assert record(body).is_complete


USES = {
    "branch": bool,
    "equal": lambda missing: missing == 1,
    "not equal": lambda missing: missing != 1,
    "member of a list": lambda missing: missing in [1, 2],
    "member of a set": lambda missing: missing in {1, 2},
    "key": lambda missing: {1: 2}.get(missing),
    "length": len,
    "order": lambda missing: missing < 3,
    "number of rounds": lambda missing: list(range(missing)),
    "class": lambda missing: isinstance(3, missing),
    "operand": lambda missing: 3 * missing,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_missing_name__decides_a_branch_in_a_test__the_case_is_unsupported(use):
    missing = imported("oneflow").some_missing_flag

    def body():
        x = random_tensor(1, 2)
        return x.exp() if use(missing) else x.sin()

    why = record(body).unsupported
    assert why is not None
    assert why.reason is UnsupportedReason.OTHER_API


def test_answered_module__name_that_is_none_in_torch__is_none():
    version = types.ModuleType("torch.version")
    version.cuda = None
    found = AnsweredModule("oneflow.version", {}, version)
    assert (found.cuda, type(found.nothing)) == (None, MissingName)


@pytest.mark.parametrize(("nodes", "devices"), [(1, 2), (1, 4), (2, 1), (2, 2), (2, 4)])
def test_skip_unless__more_than_one_device__skips(nodes: int, devices: int):
    decorate = getattr(imported("oneflow.unittest"), f"skip_unless_{nodes}n{devices}d")()

    @decorate
    def test():
        return 1

    with pytest.raises(
        unittest.SkipTest, match=rf"needs {nodes} nodes? with {devices} devices?, and is no @globaltest"
    ):
        test()


def test_skip_unless_1n1d__any__is_left_as_it_is():
    assert imported("oneflow.unittest").skip_unless_1n1d()(len) is len


def test_autotest__wrong_option__says_so_at_the_decorator():
    with pytest.raises(AuthorError, match=r"autotest\(\) has no option 'repeat'"):
        NAMES["autotest"](repeat=3)


def test_autotest__called_by_hand__says_what_runs_it():
    @NAMES["autotest"]()
    def test_it(test_case):
        return 1

    with pytest.raises(AuthorError, match=r"called outside a test\. `ci-autotest run --compat oneflow` runs it"):
        test_it(None)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (lambda: torch_of_files().nn.Softshrink(alpha=random(1, 2))(random_tensor(1, 2)), "has no argument 'alpha'"),
        (lambda: torch_of_files().nn.Threshold(nothing(), 1.0)(random_tensor(1, 2)), "nothing() was drawn for"),
    ],
)
def test_record__argument_that_torch_does_not_take__is_drawn_anew_as_in_oneflow(body, told: str):
    attempt = record(body, is_foreign=True)
    assert (attempt.is_rejected, told in str(attempt.assumption)) == (True, True)
    with pytest.raises(AuthorError, match=re.escape(told)):
        record(body)
