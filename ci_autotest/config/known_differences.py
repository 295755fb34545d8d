"""Known differences: match findings with the rows of ``known`` in the configuration."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, get_args

import msgspec

from ci_autotest.config import BUILT_IN
from ci_autotest.errors import ConfigError
from ci_autotest.values.dtypes import DTYPES
from ci_autotest.values.finding import Finding
from ci_autotest.values.operator_aliases import names_of
from ci_autotest.values.result import LOADER_CANDIDATE, REFERENCE_CANDIDATE
from ci_autotest.values.speed import SpeedResult
from ci_autotest.values.verdict import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import date

    from ci_autotest.config import Config, Known


Judged = TypeVar("Judged", Finding, SpeedResult)


class OperatorDifference(Protocol):
    """A verdict, or what has a candidate besides."""

    @property
    def operator(self) -> str:
        """Canonical operator."""

    @property
    def target(self) -> str:
        """The operator as the test spells it."""

    @property
    def kind(self) -> str | None:
        """What differs; ``None`` if nothing does."""


class AcceptableDifference(OperatorDifference, Protocol):
    """A finding, the first sight of one, or a call at larger sizes."""

    @property
    def candidate(self) -> str:
        """Name of the candidate."""


def matches(row: Known, finding: AcceptableDifference) -> bool:
    """Whether a row accepts the operator, candidate and kind of a difference."""
    return row.candidate in {None, finding.candidate} and _is_about(row, finding)


def _is_about(row: Known, finding: OperatorDifference) -> bool:
    """Whether a row accepts the operator and kind of a difference, on the candidates that it is for."""
    spelled = {*names_of(finding.operator), finding.target}
    return (
        finding.kind is not None
        # Not `fnmatch`, which ignores case on some systems. The test in a loader's operator may have brackets.
        and (row.operator in spelled or any(fnmatchcase(name, row.operator) for name in spelled))
        and row.kind in {None, finding.kind}
    )


def nothing_accepted(_: OperatorDifference) -> bool:
    """Return false: without a row of ``known`` no difference is accepted."""
    return False


def accepted_by(rows: Iterable[Known], candidate: str, today: date) -> Callable[[OperatorDifference], bool]:
    """Return a function that tells whether a row accepts a difference of a candidate today."""
    own = [row for row in valid_on(rows, today) if row.candidate in {None, candidate}]
    return (lambda finding: any(_is_about(row, finding) for row in own)) if own else nothing_accepted


def check_known(config: Config, where: str) -> None:
    """Refuse a row of ``known`` or ``tolerances`` whose kind, candidate or dtype does not exist, or that accepts all.

    Raises:
        ConfigError: There is such a row; the message names the nearest existing name.
    """
    # A row may also accept a finding of a data loader, whose candidate no configuration lists.
    candidates = {
        *BUILT_IN,
        LOADER_CANDIDATE,
        REFERENCE_CANDIDATE,
        *(candidate.name for candidate in config.candidates),
    }
    for number, known in enumerate(config.known):
        _check_name(known.kind, get_args(Kind), f"{where}: known[{number}] has kind")
        _check_name(known.candidate, candidates, f"{where}: known[{number}] has candidate")
        if "*" in known.operator and not known.operator.strip("*?.") and known.kind is None and known.candidate is None:
            message = (
                f"{where}: known[{number}] has operator {known.operator!r}, which accepts every finding. Name an "
                "operator, or a kind or candidate beside it."
            )
            raise ConfigError(message)
    for number, row in enumerate(config.tolerances):
        _check_name(row.candidate, candidates, f"{where}: tolerances[{number}] has candidate")
        _check_name(row.dtype, DTYPES, f"{where}: tolerances[{number}] has dtype")


def _check_name(name: str | None, allowed: Collection[str], what: str) -> None:
    if name is not None and name not in allowed:
        nearest = difflib.get_close_matches(name, allowed, 1, 0.5)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(sorted(allowed))}."
        message = f"{what} {name!r}, which does not exist. {hint}"
        raise ConfigError(message)


def apply_known(findings: Iterable[Judged], rows: Iterable[Known], today: date) -> tuple[Judged, ...]:
    """Return findings or timed calls, each with the reason of the row that accepts it.

    A row past its date accepts nothing.
    """
    valid = valid_on(rows, today)
    return tuple(
        msgspec.structs.replace(
            finding, known=next((row.reason for row in valid if matches(row, finding)), finding.known)
        )
        for finding in findings
    )


#: What is not compared any further where a row accepts such a difference.
_ENDS: Final = {
    "shape": "unless it has as many elements, what such a call returns is not compared any further",
    "error": "nothing after such a call is compared in its case, because it gave nothing",
    "crash": "nothing else of such a case is compared, because its process has ended",
    "timeout": "nothing else of such a case is compared, because its process has been ended",
}


def ending_rows(findings: Sequence[AcceptableDifference], rows: Iterable[Known], today: date) -> list[str]:
    """Return a sentence for each row that accepted a difference after which a case cannot be compared any further."""
    return [
        f"known difference '{row.operator}' ({row.reason}) accepts kind {row.kind}: {_ENDS[row.kind]}"
        for row in valid_on(rows, today)
        if row.kind in _ENDS and any(matches(row, finding) for finding in findings)
    ]


def valid_on(rows: Iterable[Known], today: date) -> tuple[Known, ...]:
    """Return the rows whose date has not passed."""
    return tuple(row for row in rows if row.until is None or today <= row.until)


def unmatched(findings: Sequence[AcceptableDifference], rows: Iterable[Known], today: date) -> list[str]:
    """Return a sentence for each row that accepts nothing, because it matches no finding or its date has passed."""
    sentences = []
    for row in rows:
        name = f"known difference '{row.operator}' ({row.reason})"
        # First, because the date of a row matters only if the row would accept something.
        if not any(matches(row, finding) for finding in findings):
            sentences.append(
                f"{name} matched no finding of this run. If it never does, remove the row or correct its spelling."
            )
        elif row.until is not None and today > row.until:
            sentences.append(
                f"{name} was accepted until {row.until}, which has passed. Fix the operator, or move the date."
            )
    return sentences
