"""``oneflow.unittest`` and ``oneflow.test_utils.test_util``: skips by number of devices, and tables of arguments."""

from __future__ import annotations

import itertools
import unittest
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.compat.missing_names import MissingName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: Nodes and devices for which OneFlow has a decorator.
_SHAPES: Final = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4))
#: Attributes of a test of global tensors, and of a test that is skipped because it needs several devices.
ON_RANKS: Final = "__ci_autotest_on_ranks__"
_NEEDS_DEVICES: Final = "__ci_autotest_needs_devices__"


class TestCase(unittest.TestCase):
    """OneFlow's test case; it only resets OneFlow's session."""


def skip_unless(nodes: int, devices: int) -> Callable[[Any], Any]:
    """Return a decorator that skips a test which needs more than one node or device, but no test of global tensors."""
    if (nodes, devices) == (1, 1):
        return lambda function: function
    needed = f"{nodes} {'node' if nodes == 1 else 'nodes'} with {devices} {'device' if devices == 1 else 'devices'}"

    def skipped(item: Any) -> Any:
        if isinstance(item, type):
            for name in dir(item):  # inherited ones too
                if name.startswith("test") and callable(getattr(item, name)):
                    setattr(item, name, skipped(getattr(item, name)))
            return item
        if getattr(item, ON_RANKS, False):
            return item
        found = unittest.skip(f"needs {needed}, and is no @globaltest, which alone runs on ranks")(item)
        setattr(found, _NEEDS_DEVICES, True)
        return found

    return skipped


def without_skip(function: Any) -> Any:
    """Return a test as it was before ``skip_unless`` decorated it."""
    return function.__wrapped__ if getattr(function, _NEEDS_DEVICES, False) else function


def num_nodes_required(_nodes: int) -> Callable[[Any], Any]:
    """Return a decorator that changes nothing: it is for OneFlow's own loader of tests."""
    return lambda function: function


UNITTEST: Final[dict[str, Any]] = {
    "TestCase": TestCase, "MegTestCase": TestCase, "skip_unless": skip_unless,
    "num_nodes_required": num_nodes_required,
    **{f"skip_unless_{n}n{d}d": (lambda n=n, d=d: skip_unless(n, d)) for n, d in _SHAPES},
}  # fmt: skip


def products(sets: Iterable[Iterable[Any]]) -> itertools.product[tuple[Any, ...]]:
    """Return each combination of values, without GPUs where there is none, as OneFlow's own tests on a CPU do."""
    has_gpu = torch.cuda.is_available()
    return itertools.product(*([each for each in values if has_gpu or each != "cuda"] for values in sets))


def table_rows(table: Mapping[str, list[Any]]) -> itertools.product[tuple[Any, ...]]:
    """Return each combination of the values of a table (``GenArgList``)."""
    return products(table.values())


def named_rows(table: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Return each combination of the values of a table, by name (``GenArgDict``)."""
    return [dict(zip(table, row, strict=True)) for row in table_rows(table)]


TEST_UTIL: Final[dict[str, Any]] = {
    "GenArgList": table_rows, "GenArgDict": named_rows, "GenCartesianProduct": products,
    "type_name_to_flow_type": MissingName("oneflow.test_utils.test_util.type_name_to_flow_type"),
    "type_name_to_np_type": MissingName("oneflow.test_utils.test_util.type_name_to_np_type"),
}  # fmt: skip
