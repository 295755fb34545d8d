"""What a repro must know of a candidate beyond the program: how its calls are spelled, and what a module hides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.backends.operators import operator_of, spellings
from ci_autotest.backends.torch_eager import resolve
from ci_autotest.errors import ProgramError
from ci_autotest.program.ir import CALL_FUNCTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.config import Candidate
    from ci_autotest.program.ir import Step


def repro_note(candidate: Candidate, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the candidate's part of a recording's note: plain JSON values.

    ``renames`` gives the replacement of each function target of the program, ``spellings`` the
    torch functions that a replacement answers wherever they are called, inside modules too.
    """
    replaced = {operator_of(operator): path for operator, path in candidate.replace.items()}
    targets = {step.target for step in steps if step.op == CALL_FUNCTION}
    return {
        "backend": candidate.backend,
        "candidate": candidate.name,
        "device": candidate.device,
        "options": candidate.options,
        "renames": {
            target: replaced[operator_of(target)] for target in sorted(targets) if operator_of(target) in replaced
        },
        "spellings": {path: _existing(operator) for operator, path in replaced.items()},
    }


def _existing(operator: str) -> list[str]:
    found = []
    for name in dict.fromkeys((operator, *spellings(operator))):
        try:
            resolve(name)
        except ProgramError:
            continue
        found.append(name)
    return found
