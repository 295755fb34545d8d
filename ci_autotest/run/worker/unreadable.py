"""The verdict on a candidate whose values cannot be read: it is the candidate's error, and costs no other its case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ci_autotest.backends.framework.process import HostLostError
from ci_autotest.backends.operators.identity import spelled, step_operator
from ci_autotest.errors import AuthorError, error_text
from ci_autotest.values.verdict import Misalignment, Result, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.program.ir import Program


def guarded_suspicion(program: Program, find: Callable[[], Verdict | None]) -> Verdict | None:
    """Return what ``find`` returns, or a suspicion if the candidate's values cannot be read."""
    try:
        return find()
    except (AuthorError, HostLostError):
        raise
    except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
        return msgspec.structs.replace(unreadable_verdict(program, error), kind="stateful")


def unreadable_verdict(program: Program, error: Exception) -> Verdict:
    """Return the verdict on a result that cannot be read."""
    last = len(program.steps) - 1
    step = program.calls[-1][1] if program.calls else program.steps[last]
    misalignment = Misalignment(
        kind="error", step=last, at=Result(), candidate="cannot be read", reference="returns",
        detail=f"{type(error).__name__}: {error_text(error)}"[:2000],
    )  # fmt: skip
    return Verdict(
        outcome="misaligned", operator=step_operator(step, program.steps), target=spelled(step), kind="error",
        blame="candidate", step=last, misalignment=misalignment,
        oracle="what the candidate returned cannot be compared",
    )  # fmt: skip
