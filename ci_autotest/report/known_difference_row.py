"""The ``known`` row that accepts one finding and nothing else, ready to paste into the configuration."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from ci_autotest.values.finding import counts_against

if TYPE_CHECKING:
    from ci_autotest.values.finding import Finding

_LONGEST: Final = 200
_PLAIN: Final = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
#: Words that YAML 1.1 reads as booleans or null.
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def known_row(finding: Finding) -> str:
    """Return the row of ``known``; "" for a finding that does not count or whose names do not fit a row."""
    names = {"operator": finding.operator, "candidate": finding.candidate, "kind": finding.kind}
    if not counts_against(finding) or not all(_is_name(name) for name in names.values()):
        return ""
    rows = [f"{key}: {_scalar(name)}" for key, name in names.items()]
    return "\n    ".join(["known:\n  - " + rows[0], *rows[1:], "reason: say why this is acceptable"])


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST and name.isprintable()


def _scalar(name: str) -> str:
    """Return a YAML scalar, in JSON's quotes unless the plain word is unambiguous."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name, ensure_ascii=False)
