"""One finding as a section of a page, in the forms that a budget chooses from, and as a page of its own."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from ci_autotest.report.budget import Block, Form
from ci_autotest.report.facts import facts_line, facts_table
from ci_autotest.report.markdown_text import code, fence, folded, plural, row, text
from ci_autotest.report.standing import headline

if TYPE_CHECKING:
    from ci_autotest.report.links import Links
    from ci_autotest.result import Finding

SECTIONS = "sections"
ROWS = "rows"
ACCEPTED = "accepted"

# A report may have been written by somebody else, and a command is there to be pasted: nothing that
# a shell would read.
_COMMAND = re.compile(r"[\w./=:,@+~\[\] -]+")


def finding_block(
    finding: Finding,
    links: Links | None,
    is_new: bool | None,  # noqa: FBT001 - three states, not a switch
    ranks: tuple[int, int],
) -> Block:
    """Return a finding's forms: with its program, without it, and as a row of the table of the rest.

    Args:
        finding: Any; one that is accepted is only a row.
        links: Where files are shown.
        is_new: Whether the baseline lacks it; ``None`` without a baseline.
        ranks: Of the row, and of the section.
    """
    as_row, as_section = ranks
    if finding.known is not None:
        return Block(ACCEPTED, (Form(as_row, ACCEPTED, partial(facts_line, finding)),))
    section = partial(_section, finding, links, is_new)
    full = Form(as_section, SECTIONS, partial(section, with_program=True))
    compact = Form(as_section, SECTIONS, partial(section, with_program=False))
    return Block(ROWS, (full, compact, Form(as_row, ROWS, partial(facts_line, finding))))


def finding_page(finding: Finding, links: Links | None, *, with_program: bool) -> str:
    """Return the page that lies beside ``repro.py``: an issue that can be filed upstream as it is."""
    parts = [
        f"# {text(headline(finding))}",
        "## Describe the bug",
        _described(finding),
        facts_table(finding, links),
        *_grown(finding),
        *(("## To reproduce", *_program(finding, with_program=with_program)) if finding.program else ()),
        *_commands(finding, here=True),
        *_message(finding),
        *_variants(finding, with_program=with_program),
        *(("## Versions", text(finding.versions)) if finding.versions else ()),
        *_hits(finding),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _described(finding: Finding) -> str:
    """Return the bug in sentences: what was expected, what was seen, who is wrong and how that is known."""
    seen = f"expected {text(finding.reference_seen)}, got {text(finding.candidate_seen)}"
    sentences = [f"On the same inputs, {text(finding.where) or 'the result'} differs: {seen}."]
    if finding.detail:
        sentences.append(text(finding.detail.splitlines()[0], 300).rstrip(".") + ".")
    if finding.accumulated:
        sentences.append("No step is misaligned alone: the error is accumulated.")
    if finding.layer:
        sentences.append(f"The layer at fault is {text(finding.layer)}: the layers above it are aligned.")
    if finding.confirmed:
        sentences.append("It was seen again in a fresh process, each side run twice.")
    return " ".join(sentences)


def _grown(finding: Finding) -> list[str]:
    """Return how an accumulated error grows, step by step."""
    if not finding.growth:
        return []
    rows = [row("step", "greatest difference", "ULP"), row("---", "---", "---")]
    for item in finding.growth:
        absolute = "not finite" if item.greatest_absolute is None else f"{item.greatest_absolute:.3g}"
        rows.append(row(code(item.what, 80), absolute, "" if item.greatest_ulp is None else f"{item.greatest_ulp:,}"))
    return ["How the error grows:", "".join(rows)]


def _variants(finding: Finding, *, with_program: bool) -> list[str]:
    """Return the other smallest programs of the same identity."""
    if not finding.variants or not with_program:
        return []
    parts = ["## Other programs that show the same"]
    for item in finding.variants:
        parts += [f"{text(item.headline)} ({code(item.test)}, case {item.case})", fence(item.program, "python")]
    return parts


def _hits(finding: Finding) -> list[str]:
    """Return the cases that hit it, by test."""
    if not finding.hits:
        return []
    lines = []
    for hit in finding.hits:
        more = f" and {hit.count - len(hit.cases):,} more" if hit.count > len(hit.cases) else ""
        cases = ", ".join(map(str, hit.cases))
        lines.append(f"* {code(hit.test)}: {hit.count:,} of {plural(hit.of_cases, 'case')} ({cases}{more})")
    return [folded("where it was seen", "\n".join(lines))]


def _section(
    finding: Finding,
    links: Links | None,
    is_new: bool | None,  # noqa: FBT001 - three states, not a switch
    *,
    with_program: bool,
) -> str:
    parts = [
        f"**{text(headline(finding))}**",
        facts_table(finding, links, is_new),
        *_program(finding, with_program=with_program),
        *(_detail(finding) if with_program else ()),
        *_commands(finding, here=False),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n\n"


def _program(finding: Finding, *, with_program: bool) -> list[str]:
    if not finding.program:
        return []
    if with_program:
        return [fence(finding.program, "python")]
    lines = finding.program.count("\n") + 1
    return [f"The program ({lines:,} lines) has no room here: it is in the artifact, in `findings/{finding.id}`."]


def _detail(finding: Finding) -> list[str]:
    """Return the candidate's exception, or the whole message where there are no numbers."""
    told = finding.detail or ("" if finding.difference is not None else finding.message)
    return [fence(told, "text")] if told.strip() else []


def _message(finding: Finding) -> list[str]:
    told = [item for item in (finding.message, finding.detail) if item.strip()]
    return [folded("the whole message", fence("\n\n".join(told), "text"))] if told else []


def _commands(finding: Finding, *, here: bool) -> list[str]:
    """Return the lines that run it again, to be copied."""
    lines = []
    if finding.repro is not None:
        path = "repro.py" if here else f"findings/{finding.id}/repro.py"
        why = "needs only the candidate" if here else "after downloading the artifact; needs only the candidate"
        lines.append(f"python {path}  # {why}")
    if _COMMAND.fullmatch(finding.replay):
        lines.append(f"{finding.replay}  # the same, with ci-autotest")
    return [fence("\n".join(lines), "sh")] if lines else []
