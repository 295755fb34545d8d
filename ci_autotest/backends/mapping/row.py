"""A row of a framework's table: the counterpart of one operator of torch, and what happens to its arguments."""

from __future__ import annotations

from typing import Any

import msgspec


class MappingRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The counterpart of one operator.

    Attributes:
        to: Dotted path in the framework, or ``adapters.NAME``.
        inplace: The same for in-place spellings: ``x.add_(y)``, ``x += y``, ``inplace=True``.
        rename: The framework's name of an argument, by torch's.
        default: Arguments without counterpart, with the one value that they may have.
        only: The allowed values of an argument, if other values have no counterpart.
        fill: Arguments that only the framework's function has, with the value that they get unless the call gives one.
        adapt: Adapter of an argument, by torch's name.
        promote: Adapter of each positional argument, which also gets the others: torch's type promotion.
        result: Adapter of the result.
        positional: Torch's names of the arguments to pass by position, in order.
        draws: Whether the row also holds for calls that draw random numbers, if that depends on an argument.
        reason: Why the row changes more than names.
        unsupported: Why there is no counterpart.
    """

    to: str = ""
    inplace: str = ""
    rename: dict[str, str] = {}
    default: dict[str, Any] = {}
    only: dict[str, list[Any]] = {}
    fill: dict[str, Any] = {}
    adapt: dict[str, str] = {}
    promote: str = ""
    result: str = ""
    positional: tuple[str, ...] = ()
    draws: bool = False
    reason: str = ""
    unsupported: str = ""
