"""The facts of a finding as a table: what differs, by how much, who is wrong, where it comes from.

Numbers are shown as they were compared: in decimal for reading, and in hexadecimal for the exact bits.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from ci_autotest.report.error_pattern_text import pattern_sentence
from ci_autotest.report.finding_message import earlier_sentence, sides
from ci_autotest.report.markdown_text import code, plural, row, text
from ci_autotest.report.verdict_line import marks
from ci_autotest.values.amounts import amount_of, ulp_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.links import Links
    from ci_autotest.values.finding import Finding, Location
    from ci_autotest.values.verdict import Difference

_TESTS_SHOWN = 3
#: What GitHub would change in the name of an anchor.
_NO_ANCHOR = re.compile(r"[^A-Za-z0-9_-]+")
_PAGE_CHARS = 40
#: Characters of an operator's name that the table of findings has room for.
_NAME_CHARS = 40


def facts_table(
    finding: Finding, links: Links | None = None, *, is_new: bool | None = None, kernel: Location | None = None
) -> str:
    """Return the facts as a table of two columns, without empty rows.

    Args:
        finding: Any.
        links: Addresses of the test's file and the artifact; ``None`` for no links.
        is_new: Whether the baseline lacks the finding; ``None`` without a baseline.
        kernel: Definition of the function that replaces the operator.
    """
    candidate, reference = sides(finding.kind)
    facts = {
        "operator": _operator(finding),
        "differs": _differs(finding),
        candidate: text(finding.candidate_seen),
        reference: text(finding.reference_seen),
        "greatest difference": _greatest(finding),
        "pattern as found": text(pattern_sentence(finding.pattern), 300),
        "notes": text("; ".join(finding.notes), 600),
        "first mismatch": _first_mismatch(finding),
        "blame": _blame(finding),
        "layer": text(finding.layer),
        "kernel": _kernel(kernel, links),
        "test": _test(finding, links),
        "seen": _seen(finding),
        "status": "; ".join(marks(finding, is_new)),
        "files": _files(finding, links),
    }
    rows = "".join(row(name, fact) for name, fact in facts.items() if fact)
    return f"{row('', '')}{row('---', '---')}{rows}"


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
    standing = [] if is_new is None else ["**new**" if is_new else "still"]
    blame = "" if finding.blame == "unknown" else finding.blame.replace("_", " ")
    name = finding.operator or finding.test
    if len(name) > _NAME_CHARS:  # the headline of the section has the whole name
        name = f"…{name.rpartition('::')[2].rpartition('.')[2]}"
    operator = code(name, _NAME_CHARS)
    # GitHub puts its own word before the names of anchors.
    linked = operator if page is None else f"[{operator}](#user-content-{anchor(finding, page)})"
    greatest = (_amounts(finding) or [""])[0].removeprefix("absolute ")
    seen = f"{finding.cases:,} of {finding.of_cases:,}" if finding.of_cases else ""
    return row(linked, code(finding.candidate, 60), _kind(finding), greatest, seen, blame, *standing)


def facts_line(finding: Finding) -> str:
    """Return a finding as one row: operator, candidate, what differs, greatest difference, repro's folder."""
    greatest = _amounts(finding)[:1] or [text(finding.detail, 80)]
    cells = (
        code(finding.operator or finding.test, 100),
        code(finding.candidate, 60),
        _kind(finding),
        greatest[0],
    )
    return row(*cells, code(f"findings/{finding.id}", 220))


def _kind(finding: Finding) -> str:
    what = finding.outcome.replace("_", " ") if finding.outcome != "misaligned" else finding.kind
    return f"{what}, accepted: {text(finding.known, 100)}" if finding.known is not None else what


def _operator(finding: Finding) -> str:
    is_spelled_otherwise = finding.target not in {"", finding.operator} and finding.kind != "randomness"
    spelled = f", spelled {code(finding.target)}" if is_spelled_otherwise else ""
    return f"{code(finding.operator or 'unknown')} on {code(finding.candidate)}{spelled}"


def _differs(finding: Finding) -> str:
    what = text(finding.where) or finding.kind
    difference = finding.difference
    if difference is None:
        return what if finding.outcome == "misaligned" else f"{finding.outcome.replace('_', ' ')}: {what}"
    share = f" ({difference.percent:.3g} %)" if difference.total else ""
    return f"{what}: {difference.mismatched:,} / {plural(difference.total, 'element')}{share}"


def _greatest(finding: Finding) -> str:
    difference = finding.difference
    amounts = ", ".join(_amounts(finding))
    if difference is None or not amounts:
        return amounts
    return f"{amounts} at {_index(difference.greatest_index)}; allowed: {_allowed(difference)}"


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


def _first_mismatch(finding: Finding) -> str:
    if finding.first_index is None or finding.first_pair is None:
        return ""
    difference = finding.difference
    decimals = difference.first_pair_decimal if difference is not None else ("", "")
    pair = zip(sides(finding.kind), decimals, finding.first_pair, strict=True)
    values = [f"{side} {_value(decimal, exact)}" for side, decimal, exact in pair]
    if finding.oracle_value is not None:
        values.append(f"in float64 {_value(_decimal(finding.oracle_value), finding.oracle_value)}")
    return f"{_index(finding.first_index)}: {', '.join(values)}"


def _value(decimal: str, exact: str) -> str:
    # An integer has the same text in both forms, and would be shown twice.
    if decimal in {"", exact}:
        return code(exact, 80)
    return f"**{text(decimal, 80)}** ({code(exact, 80)})"


def _decimal(value: str) -> str:
    """Return a hexadecimal float in decimal, and anything else, such as an integer, as it is."""
    try:
        return f"{float.fromhex(value):.9g}" if "0x" in value else value
    except (ValueError, OverflowError):
        return value


def _index(index: Sequence[int]) -> str:
    return text(f"[{', '.join(map(str, index))}]", 80)


def _blame(finding: Finding) -> str:
    sentence = text(finding.oracle)
    if finding.blame == "unknown":
        return sentence
    who = finding.blame.replace("_", " ")
    return f"**{who}**: {sentence}" if sentence else f"**{who}**"


def _kernel(location: Location | None, links: Links | None) -> str:
    if location is None:
        return ""
    place = str(location)
    address = links.kernel(location) if links is not None else ""
    return f"[{text(place)}]({address})" if address else code(place)


def _files(finding: Finding, links: Links | None) -> str:
    """Return the script's place in the artifact; a script from a fork is not offered, because it must not be run."""
    if links is None or not links.artifact or links.is_foreign or finding.repro is None:
        return ""
    return f"{code(f'findings/{finding.id}/repro.py', 220)} in the [artifact]({links.artifact})"


def _test(finding: Finding, links: Links | None) -> str:
    location = finding.location
    parts = [
        code(finding.test),
        f"case {finding.case}",
        f"seed {finding.seed}",
        f"profile {text(finding.profile, 40)}",
    ]
    if location is not None:
        place = str(location)
        parts.append(code(place) if links is None else f"[{text(place)}]({links.source(location)})")
    return ", ".join(parts)


def _seen(finding: Finding) -> str:
    others = [test for test in finding.tests if test != finding.test]
    seen = f"in {finding.cases:,} of {plural(finding.of_cases, 'case')}"
    if finding.earlier:
        seen = text(earlier_sentence(finding), 300)
    if not others:
        return seen
    rest = f" and {len(others) - _TESTS_SHOWN:,} more" if len(others) > _TESTS_SHOWN else ""
    return f"{seen}, also in {', '.join(code(test, 120) for test in others[:_TESTS_SHOWN])}{rest}"
