"""A row of a framework's table: what answers one operator of torch, and what becomes of its arguments."""

from __future__ import annotations

from typing import Any

import msgspec


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Say what answers one operator.

    Attributes:
        to: Dotted path in the framework, or ``adapters.NAME``.
        inplace: The same for the spellings that write to the input: ``x.add_(y)``, ``x += y``, ``inplace=True``.
        rename: The framework's name of an argument, by torch's.
        default: Arguments without counterpart, with the value that they may have.
        only: Values that an argument may have, where some have no counterpart.
        fill: What the framework's function is given besides, by its own names, where the call gives nothing.
        adapt: Adapter that an argument goes through, by torch's name.
        promote: Adapter that each argument by position goes through, with the others after it: torch's type promotion.
        result: Adapter that the result goes through.
        positional: Torch's names of arguments that go by position, in order.
        draws: Whether the row also answers calls that draw, of an operator where an argument decides whether it does.
        reason: Why the row is more than another name.
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
