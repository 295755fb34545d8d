"""The causes of a run's status in words, for annotations, JUnit and a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.report.speed_text import spoken
from ci_autotest.report.standing import word_of
from ci_autotest.report.verdict_line import headline, in_reading_order
from ci_autotest.values.expected_failures import passed_sentence
from ci_autotest.values.finding import Finding
from ci_autotest.values.judgement import Cause, CauseKind, causes
from ci_autotest.values.result import BrokenTest, RunError, TestResult
from ci_autotest.values.speed import SpeedResult

if TYPE_CHECKING:
    from ci_autotest.values.result import RunResult


def in_order(result: RunResult) -> list[Cause]:
    """Return the causes, the findings among them in the order in which they are read."""
    places = {finding.id: place for place, finding in enumerate(in_reading_order(result))}

    def place_of(cause: Cause) -> int:
        return places[cause.subject.id] if isinstance(cause.subject, Finding) else len(places)

    told: dict[object, Cause] = {}
    for cause in causes(result):
        # Of a call at several sizes the same may be said.
        what = sentence_of(cause) if isinstance(cause.subject, SpeedResult) else id(cause.subject)
        told.setdefault((cause.kind, cause.test, cause.candidate, what), cause)
    return sorted(told.values(), key=place_of)


def name_of(cause: Cause) -> str:
    """Return what a cause is about, in a few words: the operator or the test, and the candidate."""
    subject = cause.subject
    what = (subject.operator if isinstance(subject, Finding) else "") or cause.test
    return f"{what} on {cause.candidate}" if cause.candidate else what


def sentence_of(cause: Cause) -> str:
    """Return a cause in a sentence, without the name of the test; empty if it has no subject."""
    subject = cause.subject
    match subject:
        case Finding():
            return headline(subject)
        case BrokenTest() | RunError():
            return subject.message
        case SpeedResult():
            return spoken(subject)
        case TestResult(xfail=mark) if cause.kind is CauseKind.UNEXPECTED_PASS and mark is not None:
            return passed_sentence(mark)
        case TestResult():
            return subject.reason or f"{subject.outcome.replace('_', ' ')}, and no finding says why"
        case None:
            return ""


def line_of(cause: Cause) -> str:
    """Return a cause in a line of its own, with what it is about."""
    if isinstance(cause.subject, Finding):
        return f"{word_of(cause.subject)}: {cause.subject.headline}"
    return f"{cause.kind.value}: {name_of(cause)}: {sentence_of(cause)}"
