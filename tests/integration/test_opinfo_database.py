"""The module that reads PyTorch's private operator database."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from ci_autotest.backends.operators.identity import public_name
from ci_autotest.opinfo.database import WRITTEN_FOR, entries, unreadable
from ci_autotest.opinfo.names import FAMILIES, OPINFO
from ci_autotest.program.random_calls import is_random


def test_entries__installed_torch__all_have_a_family_and_torch_s_name():
    found = entries()

    assert len(found) > 600
    assert {entry.family for entry in found.values()} == set(FAMILIES[OPINFO])
    assert {"torch.add", "torch.div[floor_rounding]", "torch.nn.functional.conv2d", "torch.fft.fft"} <= set(found)


def test_entries__after_the_import__flags_can_still_be_set():
    entries()
    torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark  # PyTorch's test helpers forbid this


class Draws(TorchFunctionMode):
    """The names of the functions that move torch's generator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = torch.default_generator.get_state()
        result = func(*args, **(kwargs or {}))
        if not torch.equal(before, torch.default_generator.get_state()):
            self.names.add(public_name(func) or repr(func))
        return result


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of deprecated operators
def test_is_random__every_function_that_draws_in_a_sample_of_the_database__is():
    draws = Draws()
    for entry in entries().values():
        # Of two operators, none of the first four samples draws.
        for sample in islice(entry.samples("float32"), 5) if "float32" in entry.dtypes() else ():
            with draws, torch.no_grad(), suppress(AssertionError):  # `jiterator` needs a GPU
                entry.call(*sample.args, **sample.kwargs)

    assert len(draws.names) > 20
    assert {name for name in draws.names if not is_random(name)} == set()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(
            ModuleNotFoundError("No module named 'expecttest'", name="expecttest"),
            "builtin:opinfo needs expecttest, which is not installed. Run: pip install 'ci-autotest[opinfo]'.",
            id="package",
        ),
        pytest.param(
            ImportError("cannot import name 'op_db'", name="torch.testing._internal.common_methods_invocations"),
            f"PyTorch {torch.__version__} has no database that builtin:opinfo can read (cannot import name "
            f"'op_db'). It is written for PyTorch {WRITTEN_FOR}.",
            id="database",
        ),
    ],
)
def test_unreadable__import_fails__says_what_is_missing(error: ImportError, message: str):
    assert unreadable(error) == message
