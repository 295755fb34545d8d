"""The text of the comment, of the summary and of a finding's README, in Markdown, all from one renderer.

A page begins with the verdict, the candidates and the table of findings. Then each finding has a section that is
enough to repair the kernel, the first open and the others folded. What does not fit is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ci_autotest.report.document import Strong, Words
from ci_autotest.report.finding_facts import finding_row
from ci_autotest.report.finding_text import ACCEPTED, SECTIONS, Setting, finding_block, finding_page
from ci_autotest.report.markdown_text import FOLD_END, head, heading, markdown, size, unfolded
from ci_autotest.report.power_part import power_part
from ci_autotest.report.sections import (
    broken_part,
    candidates_part,
    coverage_part,
    fixed_part,
    footer_part,
    notes_part,
    silent_part,
    tests_part,
    unsupported_part,
)
from ci_autotest.report.size_budget import Block, BlockForm, Region, page
from ci_autotest.report.speed_text import speed_part
from ci_autotest.report.verdict_line import in_reading_order, verdict
from ci_autotest.values.amounts import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.document import Line
    from ci_autotest.report.links import Links
    from ci_autotest.report.sections import Part
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult

#: Characters of a comment. Source: GitHub's REST API answers 422 beyond it.
COMMENT_LIMIT: Final = 65_536
#: Bytes of a step's summary, below the 1 MiB beyond which GitHub drops it whole.
SUMMARY_LIMIT: Final = 1_000_000
#: Smallest size that holds what every page shows.
LEAST: Final = 4_096

_ROWS_REGION: Final = "rows"
_FOLDED_ROWS: Final = "folded rows"
#: Rows of the table of findings that are not folded.
_ROWS_OPEN: Final = 20

# Order in which the parts of a page get room when not everything fits.
_FRAME, _FIRST_FINDING, _UNTESTED, _ROWS, _SECTIONS, _GRAPHS, _TRACEBACKS, _TESTS = range(8)


@dataclass(frozen=True, slots=True)
class _Extent:
    """How much a page tries to show.

    Args:
        findings: Findings that are rendered at all. Each takes at least a row, and rows must not push sections out.
        most: Lines of every other list.
        rest: Where to find the findings that do not fit.
        has_tests: Whether the table of all tests is shown.
        title: Name before the verdict.
    """

    findings: int
    most: int
    rest: str
    has_tests: bool
    title: str = ""


_COMMENT: Final = _Extent(60, 20, "the summary and the artifact", has_tests=False)
_VERDICT_CHARS: Final = 4_000
_UNSHOWN: Final = "{count} findings do not fit here: their programs are in the artifact, in `findings/`.\n\n"
_PLAIN: Final = Setting()
_SUMMARY: Final = _Extent(1_000, 200, "the artifact, in report.json", has_tests=True)


def render_comment(result: RunResult, *, limit: int = COMMENT_LIMIT, setting: Setting = _PLAIN, title: str = "") -> str:
    """Return the pull request's comment.

    Args:
        result: The run.
        limit: Largest size of the text, in UTF-8 bytes and in UTF-16 code units; at least 4,096.
            A caller that puts a marker before the text passes a limit that is smaller by its length.
        setting: Addresses of files, run and artifact, and the source of programs.
        title: Name before the verdict, for example a leg of a matrix.
    """
    return _page(result, limit, replace(setting, page=title), replace(_COMMENT, title=title))


def render_summary(result: RunResult, *, limit: int = SUMMARY_LIMIT, setting: Setting = _PLAIN) -> str:
    """Return the job's summary: the comment with more room, and a folded table of all tests.

    Args:
        result: The run.
        limit: As for ``render_comment``.
        setting: As for ``render_comment``.
    """
    return _page(result, limit, setting, _SUMMARY)


def render_finding(finding: Finding, *, limit: int = SUMMARY_LIMIT, links: Links | None = None) -> str:
    """Return the page ``findings/<id>/README.md``.

    Args:
        finding: Any.
        limit: Size beyond which the page leaves the program out; the folder's files have it.
        links: Addresses of the test's file.
    """
    full = finding_page(finding, links, with_program=True)
    return full if size(full) <= limit else finding_page(finding, links, with_program=False)


def _page(result: RunResult, limit: int, setting: Setting, extent: _Extent) -> str:
    findings = in_reading_order(result)
    setting = setting.of(result)
    links, shown = setting.links, findings[: extent.findings]
    parts = [
        (Region(name="verdict"), [_verdict_block(result, extent.title)]),
        candidates_part(result, extent.most, _FRAME),
        fixed_part(result, _FRAME),
        *_rows_parts(findings, setting, extent),
        (Region(name=SECTIONS, more=_UNSHOWN), _finding_blocks(shown, setting)),
        (_accepted_region(findings, extent), []),
        speed_part(result, extent.most, _UNTESTED, has_all=extent.has_tests),
        power_part(result, extent.most, _UNTESTED),
        broken_part(result, extent.most, (_UNTESTED, _TRACEBACKS), links),
        silent_part(result, extent.most, _UNTESTED),
        unsupported_part(result, extent.most, _UNTESTED),
        notes_part(result, extent.most, _UNTESTED),
        *([coverage_part(result, _TESTS), tests_part(result, _TESTS)] if extent.has_tests else []),
        footer_part(result, links, _FRAME),
    ]
    return page([region for region, _ in parts], [block for _, blocks in parts for block in blocks], limit)


def _verdict_block(result: RunResult, title: str) -> Block:
    """Return the heading, with a short form for a page on which long names do not fit."""
    sign, _, sentence = verdict(result).partition(" ")
    named = (Words(title, 80), ": ") if title else ""
    lines = (heading(3, (f"{sign} ", named, each)) for each in _verdicts(result, sentence))
    return Block("verdict", tuple(BlockForm(_FRAME, "verdict", partial(str, f"{each}\n\n")) for each in lines))


def _verdicts(result: RunResult, sentence: str) -> tuple[Line, Line]:
    return Words(sentence, _VERDICT_CHARS), plural(len(result.findings), "finding")


def _finding_blocks(findings: Sequence[Finding], setting: Setting) -> list[Block]:
    return [
        finding_block(
            finding,
            setting,
            # The first finding gets room before anything that is only a list.
            (_FIRST_FINDING, _GRAPHS) if position == 0 else (_SECTIONS, _GRAPHS),
            is_open=position == 0,
        )
        for position, finding in enumerate(findings)
    ]


def _rows_parts(findings: Sequence[Finding], setting: Setting, extent: _Extent) -> list[Part]:
    """Return the table of the findings that are not accepted, which come first; what is long of it is folded."""
    heads = ("operator", "candidate", "kind", "greatest difference", "failing cases", "blame")
    heads = (*heads, *(() if setting.new is None else ("baseline",)))
    columns = head(*heads)
    counted = [finding for finding in findings if finding.known is None]
    rest = sum(finding.known is None for finding in findings[extent.findings :])
    more = f"{{count}} more findings are in {extent.rest}.\n\n"
    shown = counted[: len(counted) - rest]
    regions = [Region(name=_ROWS_REGION, lead=columns, tail="\n", more=more, beyond=rest)]
    if len(shown) > _ROWS_OPEN:
        lead = f"{unfolded(f'the other {len(counted) - _ROWS_OPEN:,} findings')}{columns}"
        tail = f"\n{FOLD_END.lstrip()}\n\n"
        regions = [
            Region(name=_ROWS_REGION, lead=columns, tail="\n"),
            Region(name=_FOLDED_ROWS, lead=lead, tail=tail, more=more, beyond=rest),
        ]
    parts: list[Part] = [(region, []) for region in regions]
    for i, finding in enumerate(shown):
        region, blocks = parts[min(i // _ROWS_OPEN, len(parts) - 1)]
        make = partial(finding_row, finding, setting.is_new(finding), setting.page)
        # The last region counts what does not fit.
        blocks.append(Block(regions[-1].name, (BlockForm(_ROWS, region.name, make),)))
    return parts


def _accepted_region(findings: Sequence[Finding], extent: _Extent) -> Region:
    heads = ("operator", "candidate", "what", "greatest difference", "folder")
    return Region(
        name=ACCEPTED,
        lead=f"{markdown(Strong('Accepted differences'))}\n\n{head(*heads)}",
        tail="\n",
        more=f"{{count}} more accepted differences are in {extent.rest}.\n\n",
        beyond=sum(finding.known is not None for finding in findings[extent.findings :]),
    )
