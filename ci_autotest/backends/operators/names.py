"""Check the operator names that a user writes: refuse a name that torch lacks, and suggest the nearest one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.operators.signatures import resolved
from ci_autotest.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPACES: Final = {
    "torch": torch, "torch.nn.functional": torch.nn.functional, "torch.Tensor": torch.Tensor,
    "torch.linalg": torch.linalg, "torch.fft": torch.fft, "torch.special": torch.special,
}  # fmt: skip


def refuse_unknown(operator: str, location: str) -> None:
    """Refuse the name of an operator that torch lacks.

    Args:
        operator: As the user wrote it, for example ``torch.nn.functional.softmax``.
        location: Place of the name, for the message.

    Raises:
        ConfigError: Torch has no operator of that name.
    """
    name = operator.rpartition(".")[2]
    if operator.startswith("torch.") and name[:1].islower() and _has(operator):
        return
    known = [f"{label}.{key}" for label, space in _SPACES.items() for key in vars(space)]
    _refuse(operator, location, known, "Write it as torch.nn.functional.softmax.")


def refuse_unknown_rows(operators: Iterable[str], key: str) -> None:
    """Refuse a row with a name that torch lacks; patterns and operators from elsewhere pass.

    Args:
        operators: The operator of each row of ``tolerances`` or ``known``.
        key: The key that the rows stand under, for the message.

    Raises:
        ConfigError: Torch has neither an operator nor a module of that name.
    """
    for number, operator in enumerate(operators):
        is_in_torch = operator.startswith("torch.") and not operator.startswith("torch.ops.")
        if is_in_torch and "*" not in operator and not _has(operator) and not _is_module(operator):
            known = [f"{label}.{key}" for label, space in _SPACES.items() for key in vars(space)]
            known += [f"torch.nn.{key}" for key in vars(torch.nn)]
            _refuse(operator, f"{key}[{number}]", known, "Correct its spelling, or write a pattern with *.")


def _has(operator: str) -> bool:
    # The last part of the name decides, because `torch.relu` and `torch.nn.functional.relu` are one operator.
    if any(hasattr(space, operator.rpartition(".")[2]) for space in _SPACES.values()):
        return True
    return callable(resolved(operator))


def _is_module(operator: str) -> bool:
    return hasattr(torch.nn, operator.rpartition(".")[2])


def _refuse(operator: str, location: str, known: list[str], otherwise: str) -> None:
    nearest = difflib.get_close_matches(operator, known, 1, 0.6)
    hint = f"Did you mean {nearest[0]!r}?" if nearest else otherwise
    message = f"{location}: torch has no operator {operator!r}. {hint}"
    raise ConfigError(message)
