"""A framework in an interpreter of its own that has no backward pass: its values are compared all the same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.mapping.table import MappingTable
from ci_autotest.backends.framework.mapping.translation import Translator
from ci_autotest.errors import UnsupportedReason
from tests.engine import judged, record

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMEWORK = """
import torch

__version__ = "1.0"


def __getattr__(name):
    if name == "autograd":
        raise AttributeError(name)
    return getattr(torch, name)


def sinh(x):
    return torch.sinh(x) + 1
"""


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteBackend]:
    folder = tmp_path_factory.mktemp("forward")
    (folder / "forward_only.py").write_text(FRAMEWORK, encoding="utf-8")
    table = MappingTable("forward_only", "", "forward_only", like_torch=True, rows={})
    found = RemoteBackend(Interpreter("it", sys.executable, "forward_only", "cpu", (str(folder),)), Translator(table))
    yield found
    found.close()


def verdict(name: str, backend: RemoteBackend, *, requires_grad: bool = True) -> Any:
    def body() -> Any:
        return getattr(torch, name)(random_tensor(dims=(4, 6), requires_grad=requires_grad))

    return judged(record(body), backend).verdict


def test_judged__right_value__is_unsupported_and_says_that_it_is_the_backward_pass(backend: RemoteBackend):
    found = verdict("exp", backend)

    assert (found.outcome, found.reason) == ("unsupported", UnsupportedReason.NO_COUNTERPART)
    assert found.oracle.startswith("in the backward pass, forward_only 1.0: ")
    assert verdict("exp", backend, requires_grad=False).outcome == "aligned"


def test_judged__wrong_value__is_misaligned(backend: RemoteBackend):
    found = verdict("sinh", backend)

    assert (found.outcome, found.kind, found.operator) == ("misaligned", "value", "torch.sinh")
