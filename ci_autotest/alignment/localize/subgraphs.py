"""Find the culprit among calls that a compiler takes only together with others.

No step alone shows it then, because PyTorch runs a step that the compiler does not take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.alignment.localize.examination import (
    TRIED_AT_MOST,
    Culprit,
    ExaminedProgram,
    TrialSides,
    examined,
    is_alike,
    last_call,
)
from ci_autotest.alignment.single_step import Live, inlined, pruned
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.errors import ProgramError
from ci_autotest.program.edit import ending_at
from ci_autotest.program.ir import is_unpacking

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Trace
    from ci_autotest.values.verdict import Misalignment


_SEVERAL: Final = 2
_TOGETHER_ONLY: Final = "the compiler takes {} only together; any of them may be at fault"
_WRONG_TOGETHER: Final = "the compiler is right about each call alone, and wrong about {} together"


def culprit_of_graph(
    live: Live, found: Misalignment, sides: TrialSides, *, is_right_alone: bool = False
) -> Culprit | None:
    """Return the culprit among calls that a compiler takes together with others; ``None`` if none is found.

    The shortest beginning of the program that shows the difference ends with the culprit, or with a call that the
    compiler takes together with it. Then the calls at its start are replaced by their values, one after the other. A
    call is the culprit if the compiler still takes the rest without it, and is right; else the last one is.

    Args:
        live: The program.
        found: The difference.
        sides: The two sides.
        is_right_alone: Whether the compiler takes each call alone, too, and is right about it.
    """
    calls = [index for index, step in live.program.calls if not is_unpacking(step)][:TRIED_AT_MOST]
    beginnings = [pruned(live._replace(program=ending_at(live.program, end), cotangents={})) for end in calls]
    is_last = False
    for at, part in enumerate(beginnings):
        seen = examined(part, sides)
        if any(is_alike(item, found) for item in seen.differences):
            culprit = _narrowed((part, seen), beginnings[at + 1 :], found, sides, is_last=is_last)
            return _with_detail(culprit, _WRONG_TOGETHER) if is_right_alone else culprit
        # The compiler ran what is before the next call, and was right.
        is_last = _is_run(seen.candidate, last_call(part))
    return None


def _narrowed(
    shown: tuple[Live, ExaminedProgram],
    later: Sequence[Live],
    found: Misalignment,
    sides: TrialSides,
    *,
    is_last: bool,
) -> Culprit:
    """Return the culprit of a program whose calls a compiler takes together.

    Args:
        shown: The program, which shows the difference.
        later: Longer ones that begin with the same calls: a compiler may take the rest of the program with them only.
        found: The difference.
        sides: The two sides.
        is_last: Whether the last call is the culprit, because the compiler is right without it.
    """
    is_first, programs = False, [shown[0], *later]
    for _ in shown[0].program.calls[1:]:
        is_own_end = programs[0] is shown[0]
        shorter = [(each, cut) for each in programs if (cut := _without_first_call(each, sides.reference)) is not None]
        rest = next(_run_by_compiler(shorter, sides), None)
        if rest is None:
            break
        longer, cut, seen = rest
        if not any(is_alike(item, found) for item in seen.differences):
            # Judged again, the longer program names the same call.
            whole = examined(longer, sides)
            is_first = not is_last and any(is_alike(item, found) for item in whole.differences)
            shown = (longer, whole) if is_first else shown
            break
        if is_own_end and longer is shown[0]:
            shown = (cut, seen)
        programs = [cut for _, cut in shorter]
    part, seen = shown
    same = [item for item in seen.differences if is_alike(item, found)]
    step = part.program.calls[0][0] if is_first else last_call(part)
    culprit = Culprit(part, step, same[0], seen.candidate, seen.reference, accumulated=False, others=tuple(same[1:]))
    return culprit if is_first or is_last else _with_detail(culprit, _TOGETHER_ONLY)


def _with_detail(culprit: Culprit, sentence: str) -> Culprit:
    """Return a culprit with a sentence on the operators of its graph, if these are several."""
    delegation, steps = culprit.candidate.delegation, culprit.live.program.steps
    own = delegation.own if delegation is not None else ()
    operators = sorted({step_operator(steps[at], steps) for at in own})
    if len(operators) < _SEVERAL:
        return culprit
    told = culprit.misalignment
    detail = ". ".join(filter(None, (sentence.format(", ".join(operators)), told.detail)))
    return culprit._replace(misalignment=msgspec.structs.replace(told, detail=detail))


def _run_by_compiler(
    programs: Sequence[tuple[Live, Live]], sides: TrialSides
) -> Iterator[tuple[Live, Live, ExaminedProgram]]:
    """Yield the programs whose first call the compiler runs itself, each after a longer one, with its differences."""
    for longer, each in programs:
        seen = examined(each, sides)
        if _is_run(seen.candidate, each.program.calls[0][0]):
            yield longer, each, seen


def _without_first_call(live: Live, reference: Backend) -> Live | None:
    """Return the program with its first call replaced by what it gives; ``None`` if that is no tensor."""
    try:
        return inlined(live, live.program.calls[0][0], reference)
    except ProgramError:
        return None


def _is_run(candidate: Trace, index: int) -> bool:
    """Whether a compiler ran a step itself."""
    return candidate.delegation is not None and index in candidate.delegation.own
