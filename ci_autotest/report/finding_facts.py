"""The facts of a finding: what differs, by how much, who is wrong, where it comes from.

Numbers are shown as they were compared: in decimal for reading, and in hexadecimal for the exact bits.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from ci_autotest.report.document import Code, Link, Strong, Words, joined
from ci_autotest.report.error_pattern_text import pattern_sentence
from ci_autotest.report.markdown_text import row
from ci_autotest.report.verdict_line import marks
from ci_autotest.values.amounts import amount_of, plural, ulp_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.document import Line
    from ci_autotest.report.links import Links
    from ci_autotest.values.finding import Finding, Location
    from ci_autotest.values.verdict import Difference

PATTERN = "pattern as found"
_TESTS_SHOWN = 3
#: What GitHub would change in the name of an anchor.
_NO_ANCHOR = re.compile(r"[^A-Za-z0-9_-]+")
_PAGE_CHARS = 40
#: Characters of an operator's name that the table of findings has room for.
_NAME_CHARS = 40


def facts(
    finding: Finding, links: Links | None = None, *, is_new: bool | None = None, kernel: Location | None = None
) -> dict[str, Line]:
    """Return what is known, by name.

    Args:
        finding: Any.
        links: Addresses of the test's file and the artifact; ``None`` for no links.
        is_new: Whether the baseline lacks the finding; ``None`` without a baseline.
        kernel: Definition of the function that replaces the operator.
    """
    candidate, reference = sides(finding.kind)
    found: dict[str, Line] = {
        "operator": _operator(finding),
        "differs": _differs(finding),
        candidate: finding.candidate_seen and Words(finding.candidate_seen),
        reference: finding.reference_seen and Words(finding.reference_seen),
        "greatest difference": _greatest(finding),
        PATTERN: Words(pattern) if (pattern := pattern_sentence(finding.pattern)) else "",
        "notes": Words("; ".join(finding.notes), 600) if finding.notes else "",
        "first mismatch": _first_mismatch(finding),
        "blame": _blame(finding),
        "layer": finding.layer and Words(finding.layer),
        "kernel": _kernel(kernel, links),
        "test": _test(finding, links),
        "seen": _seen(finding),
        "status": joined("; ", marks(finding, is_new)),
        "files": _files(finding, links),
    }
    return {name: fact for name, fact in found.items() if fact}


def sides(kind: str | None) -> tuple[str, str]:
    """Return the names of the two sides: for nondeterminism they are two runs of the same side."""
    if kind == "randomness":
        return "loader", "expected"
    return ("second run", "first run") if kind == "nondeterminism" else ("candidate", "reference")


def earlier_sentence(finding: Finding) -> str:
    """Return the sentence for a finding that only an earlier run's cases show; it says how to drop the finding."""
    return (
        f"no case of this run shows it: an earlier run found it, and its program in .autotest/findings/{finding.id} "
        f"still fails (delete that folder if the test no longer covers it)"
    )


def anchor(finding: Finding, page: str = "") -> str:
    """Return the name of a finding's section, by which the table of findings links to it.

    Args:
        finding: Any.
        page: What tells this report from others of the same comment.
    """
    # A part of the hash keeps `3.11` and `3-11` apart.
    plain = _NO_ANCHOR.sub("-", page)
    told = plain if plain == page else f"{plain[:_PAGE_CHARS]}-{hashlib.sha256(page.encode()).hexdigest()[:6]}"
    return "-".join(filter(None, (told, _NO_ANCHOR.sub("-", finding.id))))


def finding_row(finding: Finding, is_new: bool | None, page: str | None = None) -> str:  # noqa: FBT001 - three answers
    """Return a finding as one row of the table of findings; the last cell is left out without a baseline.

    Args:
        finding: Any.
        is_new: Whether the baseline lacks it; ``None`` without a baseline.
        page: As for ``anchor``; ``None`` if the finding has no section.
    """
    standing = [] if is_new is None else [Strong("new") if is_new else "still"]
    blame = "" if finding.blame == "unknown" else finding.blame.replace("_", " ")
    name = finding.operator or finding.test
    if len(name) > _NAME_CHARS:  # the headline of the section has the whole name
        name = f"…{name.rpartition('::')[2].rpartition('.')[2]}"
    operator = Code(name, _NAME_CHARS)
    # GitHub puts its own word before the names of anchors.
    linked = operator if page is None else Link(operator, f"#user-content-{anchor(finding, page)}")
    greatest = (_amounts(finding) or [""])[0].removeprefix("absolute ")
    seen = f"{finding.cases:,} of {finding.of_cases:,}" if finding.of_cases else ""
    return row(linked, Code(finding.candidate, 60), _kind(finding), greatest, seen, blame, *standing)


def facts_line(finding: Finding) -> str:
    """Return a finding as one row: operator, candidate, what differs, greatest difference, repro's folder."""
    amounts = _amounts(finding)
    return row(
        Code(finding.operator or finding.test, 100),
        Code(finding.candidate, 60),
        _kind(finding),
        amounts[0] if amounts else Words(finding.detail, 80),
        Code(f"findings/{finding.id}", 220),
    )


def _kind(finding: Finding) -> Line:
    what = finding.outcome.replace("_", " ") if finding.outcome != "misaligned" else finding.kind
    return (what, ", accepted: ", Words(finding.known, 100)) if finding.known is not None else what


def _operator(finding: Finding) -> Line:
    is_spelled_otherwise = finding.target not in {"", finding.operator} and finding.kind != "randomness"
    spelled = (", spelled ", Code(finding.target)) if is_spelled_otherwise else ""
    return Code(finding.operator or "unknown"), " on ", Code(finding.candidate), spelled


def _differs(finding: Finding) -> Line:
    what = Words(finding.where or finding.kind)
    difference = finding.difference
    if difference is None:
        return what if finding.outcome == "misaligned" else (f"{finding.outcome.replace('_', ' ')}: ", what)
    share = f" ({difference.percent:.3g} %)" if difference.total else ""
    return what, f": {difference.mismatched:,} / {plural(difference.total, 'element')}{share}"


def _greatest(finding: Finding) -> Line:
    difference = finding.difference
    first, *others = _amounts(finding) or [""]
    if difference is None or not first:
        return joined(", ", (first, *others))
    place = (first, " at ", _index(difference.greatest_index))
    return joined(", ", (place, *others)), f"; allowed: {_allowed(difference)}"


def _amounts(finding: Finding) -> list[str]:
    """Return the greatest absolute, relative and ULP difference, as far as they exist."""
    absolute = finding.greatest_absolute_difference
    amounts = [f"absolute {amount_of(absolute, '.3g')}"] if absolute is not None else []
    if absolute is None and finding.difference is not None:
        amounts.append("absolute not finite")
    if finding.greatest_relative_difference is not None:
        amounts.append(f"relative {finding.greatest_relative_difference:.3g}")
    ulp = ulp_words(finding.greatest_ulp_difference, finding.greatest_relative_difference)
    return [*amounts, *filter(None, [ulp])]


def _allowed(difference: Difference) -> str:
    if not difference.rtol and not difference.atol:
        return "none"
    return f"atol {difference.atol:.3g}, rtol {difference.rtol:.3g}"


def _first_mismatch(finding: Finding) -> Line:
    if finding.first_index is None or finding.first_pair is None:
        return ""
    difference = finding.difference
    decimals = difference.first_pair_decimal if difference is not None else ("", "")
    pair = zip(sides(finding.kind), decimals, finding.first_pair, strict=True)
    values: list[Line] = [(f"{side} ", _value(decimal, exact)) for side, decimal, exact in pair]
    if finding.oracle_value is not None:
        values.append(("in float64 ", _value(_decimal(finding.oracle_value), finding.oracle_value)))
    return _index(finding.first_index), ": ", joined(", ", values)


def _value(decimal: str, exact: str) -> Line:
    # An integer has the same text in both forms, and would be shown twice.
    if decimal in {"", exact}:
        return Code(exact, 80)
    return Strong(Words(decimal, 80)), " (", Code(exact, 80), ")"


def _decimal(value: str) -> str:
    """Return a hexadecimal float in decimal, and anything else, such as an integer, as it is."""
    try:
        return f"{float.fromhex(value):.9g}" if "0x" in value else value
    except (ValueError, OverflowError):
        return value


def _index(index: Sequence[int]) -> Line:
    return Words(f"[{', '.join(map(str, index))}]", 80)


def _blame(finding: Finding) -> Line:
    sentence = finding.oracle and Words(finding.oracle)
    if finding.blame == "unknown":
        return sentence
    return joined(": ", (Strong(finding.blame.replace("_", " ")), sentence))


def _kernel(location: Location | None, links: Links | None) -> Line:
    if location is None:
        return ""
    address = links.kernel(location) if links is not None else ""
    return Link(Words(str(location)), address) if address else Code(str(location))


def _files(finding: Finding, links: Links | None) -> Line:
    """Return the script's place in the artifact; a script from a fork is not offered, because it must not be run."""
    if links is None or not links.artifact or links.is_foreign or finding.repro is None:
        return ""
    return Code(f"findings/{finding.id}/repro.py", 220), " in the ", Link("artifact", links.artifact)


def _test(finding: Finding, links: Links | None) -> Line:
    if not finding.test:
        return ""  # A saved program may come from elsewhere.
    location = finding.location
    about: Line = (f"case {finding.case}, seed {finding.seed}, profile ", Words(finding.profile, 40))
    return joined(", ", (Code(finding.test), about, place_line(location, links) if location is not None else ""))


def place_line(location: Location, links: Links | None) -> Line:
    """Return the place of a test, which links to its file if it can."""
    return Code(str(location)) if links is None else Link(Words(str(location)), links.source(location))


def _seen(finding: Finding) -> Line:
    others = [test for test in finding.tests if test != finding.test]
    seen: Line = f"in {finding.cases:,} of {plural(finding.of_cases, 'case')}"
    if finding.earlier:
        seen = Words(earlier_sentence(finding))
    if not others:
        return seen
    rest = f" and {len(others) - _TESTS_SHOWN:,} more" if len(others) > _TESTS_SHOWN else ""
    return seen, ", also in ", joined(", ", (Code(test, 120) for test in others[:_TESTS_SHOWN])), rest
