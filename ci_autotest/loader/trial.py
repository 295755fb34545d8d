"""A loader's verdict: what its ranks observed, compared, in words, with the repro of a finding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.loader.comparison import problems, remarks
from ci_autotest.loader.repro import script
from ci_autotest.loader.wording import verdict_of
from ci_autotest.values.verdict import Verdict, unsupported_verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.loader.observations import Observations
    from ci_autotest.loader.repro import Subject


class Judgement(NamedTuple):
    """What is known about a loader after it ran.

    Attributes:
        verdict: Aligned, misaligned with kind ``randomness``, or unsupported without a sample.
        script: The repro of a finding; empty without one.
        notes: Sentences for the report.
    """

    verdict: Verdict
    script: str = ""
    notes: tuple[str, ...] = ()


def judged(ranks: Sequence[Observations], subject: Subject) -> Judgement:
    """Return the judgement on a loader.

    Args:
        ranks: What each rank observed.
        subject: How the loader is made again.
    """
    seen = ranks[0]
    if not seen.epochs[0]:
        why = Unsupported(UnsupportedReason.NO_SAMPLES, f"the loader of {seen.dataset} gives no sample")
        return Judgement(unsupported_verdict(why))
    found = problems(ranks)
    verdict = verdict_of(found, seen, Path(subject.root))
    notes = tuple(remarks(ranks))
    return Judgement(verdict, script(found[0], seen, subject, verdict) if found else "", notes)
