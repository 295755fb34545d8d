"""Find out which operators a candidate supports, from its table and its framework's namespace; no operator is run."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.devices import devices_here, lacks
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.operators.identity import operator_of, spellings
from ci_autotest.program.ir import CALL_MODULE
from ci_autotest.values.result import OperatorStanding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.framework.mapping.table import MappingTable
    from ci_autotest.backends.protocol import Backend


#: Operators that every framework's tensors support, unless the table has a row.
_OF_PYTHON: Final = frozenset({"torch.Tensor.__getitem__", "torch.Tensor.__setitem__"})
_LAYER: Final = re.compile(r"torch\.nn\.[A-Z]\w*")


class OperatorSupport(NamedTuple):
    """A candidate's devices, as far as they are known, and the standing of each operator on it."""

    devices: list[str]
    operators: list[OperatorStanding]


def standing(backend: Backend, operators: Sequence[str]) -> OperatorSupport:
    """Return the standing of some operators on a candidate; of none where only an export of the body can tell.

    Args:
        backend: The candidate's backend.
        operators: Canonical names.
    """
    if isinstance(backend, ExportBackend):
        return OperatorSupport(["cpu"], [])
    if not isinstance(backend, RemoteBackend):
        device = str(getattr(backend, "device", "cpu"))
        return OperatorSupport(devices_here(device), [_on_device(operator, device) for operator in operators])
    table = backend.table
    by_table = {operator: _by_table(operator, table) for operator in operators}
    asked = {operator: _targets(operator, table) for operator, known in by_table.items() if known is None}
    flat = [target for targets in asked.values() for target in targets]
    about = backend.about(flat)
    has = dict(zip(flat, about.has, strict=True))
    name = f"{table.framework} {backend.hello.version}"
    found = []
    for operator in operators:
        one = by_table[operator]
        if one is None:
            has_any = any(has[target] for target in asked[operator])
            reason = "" if has_any else f"{name} has no {asked[operator][0]}"
            one = OperatorStanding(operator=operator, standing="supported" if has_any else "absent", reason=reason)
        found.append(one)
    return OperatorSupport(about.devices, found)


def _on_device(operator: str, device: str) -> OperatorStanding:
    # `lacks` compares a device with the CPU's kernels, so the CPU itself lacks none.
    reason = lacks(operator, device) if device != "cpu" else ""
    return OperatorStanding(operator=operator, standing="no_kernel" if reason else "supported", reason=reason)


def _by_table(operator: str, table: MappingTable) -> OperatorStanding | None:
    """Return the standing that follows from the table alone; ``None`` if only the framework knows."""
    row = table.row(operator)
    if row is not None and row.unsupported:
        return OperatorStanding(operator=operator, standing="unsupported", reason=row.unsupported)
    if row is not None or table.like_torch:
        return None
    if operator in _OF_PYTHON:
        return OperatorStanding(operator=operator, standing="supported")
    reason = "a layer, which is lowered to the functions that it calls" if _LAYER.fullmatch(operator) else ""
    return OperatorStanding(operator=operator, standing="unmapped", reason=reason)


@lru_cache(maxsize=1)
def _classes() -> dict[str, list[str]]:
    """Return the classes of torch.nn whose forward is one operator, by that operator."""
    found: dict[str, list[str]] = {}
    for name, value in vars(torch.nn).items():
        if isinstance(value, type) and issubclass(value, torch.nn.Module):
            found.setdefault(operator_of(f"torch.nn.{name}", CALL_MODULE), []).append(f"torch.nn.{name}")
    return found


def _targets(operator: str, table: MappingTable) -> list[str]:
    """Return the names under which the framework may have an operator."""
    row = table.row(operator)
    if row is not None and (row.to or row.inplace):
        return [row.to or row.inplace]
    spelled = (name for name in spellings(operator) if operator_of(name) == operator)
    names = dict.fromkeys([operator, *spelled, *_classes().get(operator, ())])
    return [f"{table.namespace}{name.removeprefix('torch')}" for name in names]
