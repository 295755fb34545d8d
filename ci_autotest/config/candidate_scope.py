"""Refuse a candidate whose declared scope names something that does not exist or that its backend does not use."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ConfigError
from ci_autotest.program.python_names import is_name
from ci_autotest.values.dtypes import DTYPES

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.config.values import Candidate

#: Profiles of cases. ``record/draw/profiles.py`` applies them, which the parent process does not import.
PROFILES: Final = (
    "ordinary", "zero_dim", "zero_size", "size_one", "boundary", "non_contiguous", "zeros_and_ties", "large", "special",
)  # fmt: skip
#: Keys of a row that are asked of each call, and so need functions that answer calls.
_OF_CALLS: Final = ("devices", "writes")


def check_scope(candidate: Candidate, where: str) -> None:
    """Refuse a scope that names something unknown.

    Raises:
        ConfigError: It does; the message names the nearest known name.
    """
    named = f"{where}: candidate {candidate.name!r}"
    if candidate.inference and candidate.backend != "torch.compile":
        message = (
            f"{named} has 'inference', which backend {candidate.backend} does not use: it says how a compiled body is "
            "run. Write backend: torch.compile, or remove it."
        )
        raise ConfigError(message)
    if candidate.backend != "substitute" and isinstance(candidate.forward_only, tuple):
        message = (
            f"{named} has forward_only with names of operators. Without `replace`, write forward_only: true, which "
            "holds for every body."
        )
        raise ConfigError(message)
    if candidate.inference and candidate.forward_only:
        message = f"{named} has both inference and forward_only. Remove one: inference leaves out gradients, too."
        raise ConfigError(message)
    given = next((key for key in _OF_CALLS if getattr(candidate, key)), None)
    if given is not None and candidate.backend != "substitute":
        message = (
            f"{named} has {given!r}, which backend {candidate.backend} does not use. It says what the functions of "
            "`replace` take: write backend: substitute, or remove it."
        )
        raise ConfigError(message)
    if candidate.guard is not None and candidate.backend != "substitute":
        message = (
            f"{named} has 'guard', which backend {candidate.backend} does not use: it guards the inputs of the "
            "functions of `replace`. Remove it."
        )
        raise ConfigError(message)
    if candidate.opcheck is not None and candidate.backend != "substitute":
        message = (
            f"{named} has 'opcheck', which backend {candidate.backend} does not use: it checks the operators of "
            "libraries that `replace` names. Remove it."
        )
        raise ConfigError(message)
    for key, known in (("dtypes", DTYPES.keys()), ("profiles", PROFILES)):
        _check_names(getattr(candidate, key), known, f"{named} has {key}: ", "which does not exist")
    if isinstance(candidate.forward_only, tuple):
        what = "which it does not replace"
        _check_names(candidate.forward_only, candidate.replace, f"{named} has forward_only: ", what)
    wrong = next((name for name in candidate.devices if not is_name(name)), None)
    if wrong is not None:
        message = f"{named} has devices: {wrong[:80]!r}. Write kinds of devices without an index, such as cpu or cuda."
        raise ConfigError(message)


def _check_names(names: tuple[str, ...], known: Collection[str], what: str, why: str) -> None:
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(known)}."
            message = f"{what}{name[:80]!r}, {why}. {hint}"
            raise ConfigError(message)
