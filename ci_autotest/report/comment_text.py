"""The text of the comment, of the summary and of a finding's README, in Markdown, all from one renderer.

A page begins with the verdict, the candidates and the table of findings. Then each finding has a section that is
enough to repair the kernel, the first open and the others folded. What does not fit is counted: each part is a
region with at most ``most`` blocks, and ``size_budget`` decides which of them fit.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ci_autotest.report.coverage import known_of, size_sentence
from ci_autotest.report.document import Code, Link, Strong, Words, joined
from ci_autotest.report.finding_facts import finding_row, place_line
from ci_autotest.report.finding_text import ACCEPTED, SECTIONS, Setting, finding_block, finding_page
from ci_autotest.report.markdown_text import (
    FOLD_END,
    bullet,
    fence,
    folded,
    head,
    heading,
    markdown,
    row,
    size,
    unfolded,
)
from ci_autotest.report.power_text import power_part
from ci_autotest.report.size_budget import Block, BlockForm, Region, fixed, page
from ci_autotest.report.speed_text import speed_part
from ci_autotest.report.verdict_line import in_reading_order, partial_sentences, partly_compared, verdict
from ci_autotest.values.amounts import plural
from ci_autotest.values.result import LONG_COMPILING_S
from ci_autotest.values.verdict import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.document import Line
    from ci_autotest.report.links import Links
    from ci_autotest.values.coverage_values import CandidateCoverage, CoverageCounts
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import BrokenTest, CandidateInfo, NoProfile, RunResult, TestResult
    from ci_autotest.values.verdict import Outcome

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
_Part = tuple[Region, list[Block]]

#: A time as GitHub writes it: its date, and its hour and minute.
_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}):[0-9]{2}Z")
_WHY: Final[dict[NoProfile, str]] = {
    "bounds": "out of bounds",
    "dtype": "not in this dtype",
    "fixed_sizes": "sizes are given",
    "no_drawn_tensor": "nothing is drawn",
    "rejected": "rejected",
    "stored_elements": "elements are stored",
    "too_few_elements": "too few elements",
}
#: Findings of the baseline alone that are named.
_FIXED: Final = 10
#: Candidates that the title of the folded table names.
_CANDIDATES: Final = 8
_ALARMING: Final = frozenset({"misaligned", "crashed", "timed_out"})


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
        _candidates_part(result, extent.most, _FRAME),
        _fixed_part(result, _FRAME),
        *_rows_parts(findings, setting, extent),
        (Region(name=SECTIONS, more=_UNSHOWN), _finding_blocks(shown, setting)),
        (_accepted_region(findings, extent), []),
        speed_part(result, extent.most, _UNTESTED, has_all=extent.has_tests),
        power_part(result, extent.most, _UNTESTED),
        _broken_part(result, extent.most, (_UNTESTED, _TRACEBACKS), links),
        _silent_part(result, extent.most, _UNTESTED),
        _unsupported_part(result, extent.most, _UNTESTED),
        _notes_part(result, extent.most, _UNTESTED),
        *([_coverage_part(result, _TESTS), _tests_part(result, _TESTS)] if extent.has_tests else []),
        _footer_part(result, links, _FRAME),
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


def _rows_parts(findings: Sequence[Finding], setting: Setting, extent: _Extent) -> list[_Part]:
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
    parts: list[_Part] = [(region, []) for region in regions]
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


def _candidates_part(result: RunResult, most: int, rank: int) -> _Part:
    """Return the table of candidates: tests by outcome, without empty columns, and cases compared."""
    seen = {item.outcome for item in result.results}
    columns = [name for name in COLUMNS if name in seen]
    heads = [name.replace("_", " ") for name in columns]
    lead = head("tests on", *heads, "cases compared", numbers=(*heads, "cases compared"))
    more = "\n{count} more candidates are in report.json.\n"
    blocks = [
        fixed(
            "candidates",
            _candidate_row(info, [item for item in result.results if item.candidate == info.name], columns),
            rank,
        )
        for info in result.candidates[:most]
    ]
    return Region(name="candidates", lead=lead, tail="\n", more=more, beyond=_beyond(result.candidates, most)), blocks


def _broken_part(result: RunResult, most: int, ranks: tuple[int, int], links: Links | None) -> _Part:
    """Return the broken tests with their message, and with their traceback if it fits (second rank)."""
    lead = f"{markdown(Strong(plural(len(result.broken), 'broken test')))}\n\n"
    blocks = [
        Block(
            "broken",
            (
                BlockForm(ranks[0], "broken", partial(_broken_line, item, links)),
                BlockForm(ranks[1], "broken", partial(_broken_section, item, links)),
            ),
        )
        for item in result.broken[:most]
    ]
    more = "{count} more broken tests are in report.json.\n\n"
    return Region(name="broken", lead=lead, more=more, beyond=_beyond(result.broken, most)), blocks


def _silent_part(result: RunResult, most: int, rank: int) -> _Part:
    """Return the tests that compared nothing, with the reason."""
    silent = [item for item in result.results if not item.cases.compared]
    lines = [bullet((_pair(item), ": ", _reason(item))) for item in silent[:most]]
    return _listing(
        "silent",
        f"Nothing was compared ({len(silent):,} of {len(result.results):,})",
        lines,
        rank,
        _beyond(silent, most),
    )


def _unsupported_part(result: RunResult, most: int, rank: int) -> _Part:
    """Return the tests of which something was compared and something was not, with the reasons."""
    partly = partly_compared(result)
    lines = [bullet((_pair(item), ": ", Words("; ".join(partial_sentences(item)), 400))) for item in partly[:most]]
    title = f"Compared in part ({len(partly):,} of {len(result.results):,})"
    return _listing("unsupported", title, lines, rank, _beyond(partly, most))


def _notes_part(result: RunResult, most: int, rank: int) -> _Part:
    """Return the notes, and the tests whose inputs the reference rejects most of the time."""
    weak = list({item.test: item for item in result.results if item.weak}.values())
    lines = [bullet(Words(note)) for note in result.notes[:most]]
    lines += [bullet(_weakness(item)) for item in weak[:most]]
    return _listing("notes", "Notes", lines, rank, _beyond(result.notes, most) + _beyond(weak, most))


def _pair(item: TestResult) -> Line:
    return Code(item.test), " on ", Code(item.candidate, 60)


def _weakness(item: TestResult) -> Line:
    of = plural(item.attempts.accepted + item.attempts.rejected, "attempt")
    example: Line = (", for example: ", Words(item.refusal, 200)) if item.refusal else "."
    return Code(item.test), f" is weak: the reference rejected {item.attempts.rejected:,} of {of}", example


def _fixed_part(result: RunResult, rank: int) -> _Part:
    """Return how the run compares with its baseline, if it has one."""
    if result.new is None and not result.fixed:
        return Region(name="baseline"), []
    if result.new is None:  # Without a baseline, these were findings of earlier runs.
        counts = f"{len(result.fixed):,} fixed"
        return _fixed_blocks(result, rank, "Findings of earlier runs: ", counts)
    known = sum(finding.known is not None for finding in result.findings)
    new = sum(finding.known is None and finding.id in (result.new or ()) for finding in result.findings)
    still = len(result.findings) - known - new
    counts = f"{new:,} new, {still:,} still there, {known:,} known, {len(result.fixed):,} fixed"
    return _fixed_blocks(result, rank, "Findings against the baseline: ", counts)


def _fixed_blocks(result: RunResult, rank: int, lead: str, counts: str) -> _Part:
    names = joined(", ", (Code(name, 150) for name in result.fixed[:_FIXED]))
    tail = (": ", names, ", …" if len(result.fixed) > _FIXED else "") if names else ""
    blocks = [Block("baseline", tuple(_sentence(rank, lead, ending) for ending in ((counts, tail), counts)))]
    return Region(name="baseline"), blocks


def _tests_part(result: RunResult, rank: int) -> _Part:
    """Return the folded table of all tests with their profiles and times."""
    heads = ("test", "candidate", "outcome", "aligned / compared", "rejected", "profiles", "time")
    sizes = f"{markdown((Words(sentence, 600), '.'))}\n\n" if (sentence := size_sentence(result)) else ""
    lead = f"{unfolded('All tests')}{sizes}{head(*heads)}"
    forms = [BlockForm(rank, "tests", partial(_test_row, item)) for item in result.results]
    more = "\n{count} more tests are in report.json.\n\n"
    return Region(name="tests", lead=lead, tail=_FOLD_TAIL, more=more), [Block("tests", (form,)) for form in forms]


_FOLD_TAIL: Final = f"\n{FOLD_END.lstrip()}\n\n"
#: Row of the operators of the user's in the table of families.
_YOURS: Final = "your own"
#: The row of the overloads of PyTorch's dispatcher.
_DISPATCHER: Final = "dispatcher overloads"


def _coverage_part(result: RunResult, rank: int) -> _Part:
    """Return the folded table of torch's public operators by candidate and family."""
    heads = ("candidate", "family", "public", "tested", "supported", "aligned", "misaligned", "reference off", "known")
    summary = joined("; ", (_coverage_of(item) for item in result.coverage[:_CANDIDATES]))
    lead = f"{unfolded(('Operators: ', summary))}{head(*heads, numbers=heads[2:])}"
    lines = [
        row(Code(item.candidate, 60), Words(family, 60), *_counts(counts))
        for item in result.coverage
        for family, counts in (*item.families.items(), *_others(item))
    ]
    more = "\n{count} more families are in report.json.\n\n"
    region = Region(name="coverage", lead=lead, tail=_FOLD_TAIL, more=more)
    return region, [fixed("coverage", line, rank) for line in lines]


def _others(item: CandidateCoverage) -> list[tuple[str, CoverageCounts]]:
    """Return the rows below those of the families of public operators."""
    return [row for row in ((_DISPATCHER, item.overloads), (_YOURS, item.own)) if row[1].tested]


def _coverage_of(item: CandidateCoverage) -> Line:
    counts = item.counts
    of = f"{counts.supported:,} of {counts.tested:,} tested are supported"
    found = f"{counts.aligned:,} aligned, {counts.misaligned:,} misaligned{known_of(counts)}"
    return Words(item.candidate, 60), f" {of}, {found}"


def _counts(counts: CoverageCounts) -> tuple[str, ...]:
    return tuple(f"{getattr(counts, name):,}" for name in counts.__struct_fields__)


def _footer_part(result: RunResult, links: Links | None, rank: int) -> _Part:
    """Return the last line: seed, versions, duration and the place of the files."""
    where: Line = Link("artifact", links.artifact) if links and links.artifact else "artifact"
    digest: Line = (" (sha256 ", Code(links.digest), ")") if links and links.digest else ""
    ran, shard = result.environment, result.shard
    parts: list[Line] = [
        f"seed {result.seed}",
        f"{result.shapes} shapes per test" if result.shapes else "",
        f"shard {shard[0]} of {shard[1]}" if shard[1] != 1 else "",
        ("ci-autotest ", Words(ran.ci_autotest, 40)),
        ("Python ", Words(ran.python, 40)),
        ("torch ", Words(ran.torch, 40)) if ran.torch else "",
        ran.platform and Words(ran.platform, 80),
        _commit(ran.commit, links),
        f"{result.duration_s:,.1f} s",
        Link("run", links.run) if links and links.run else "",
        _time(links),
        (Code("report.json"), ", ", Code("junit.xml"), " and ", Code("findings/"), " are in the ", where, digest),
    ]
    return Region(name="footer"), [fixed("footer", f"<sub>{markdown(joined(' · ', parts))}</sub>\n", rank)]


def _time(links: Links | None) -> str:
    """Return when the report was uploaded: a comment that is written again is not told from an older one otherwise."""
    found = _TIME.fullmatch(links.uploaded) if links else None
    return f"reported {found[1]} {found[2]} UTC" if found else ""


def _commit(tested: str, links: Links | None) -> Line:
    """Return the commit; that of a pull request is its head, not the merge that was checked out and tested."""
    if links is not None:
        return "commit ", Link(Words(links.sha[:12]), links.commit)
    return ("commit ", Code(tested[:12])) if tested else ""


def _beyond(items: Sequence[object], most: int) -> int:
    return max(0, len(items) - most)


def _sentence(rank: int, lead: str, ending: Line) -> BlockForm:
    said = markdown((lead, ending, "."))
    return BlockForm(rank, "baseline", partial(str, f"{said}\n\n"))


def _listing(name: str, title: str, lines: Sequence[str], rank: int, beyond: int) -> _Part:
    blocks = [fixed(name, item, rank) for item in lines]
    more = f"\n{{count}} more ({name}) are in report.json.\n\n"
    return Region(name=name, lead=f"{markdown(Strong(title))}\n\n", tail="\n", more=more, beyond=beyond), blocks


def _candidate_row(info: CandidateInfo, results: Sequence[TestResult], columns: Sequence[Outcome]) -> str:
    counts = Counter(item.outcome for item in results)
    numbers: list[Line] = [
        Strong(f"{counts[name]:,}") if name in _ALARMING and counts[name] else f"{counts[name]:,}" for name in columns
    ]
    about = joined(", ", (Words(word, 60) for word in (info.backend, info.version, info.mode, info.device) if word))
    why = Words(info.reason or "no reason was given", 200)
    missing: Line = "" if info.available else ("; ", Strong("not available"), ": ", why)
    return row(
        (Code(info.name, 60), " (", about, ")", missing),
        *numbers,
        f"{sum(item.cases.compared for item in results):,}",
    )


def _broken_line(item: BrokenTest, links: Links | None) -> str:
    where: Line = (", ", place_line(item.location, links)) if item.location is not None else ""
    return bullet((Code(item.test), where, ": ", Words(item.message)))


def _broken_section(item: BrokenTest, links: Links | None) -> str:
    summary = _broken_line(item, links)
    if not item.traceback.strip():
        return summary
    block = folded("traceback", fence(item.traceback, "text"))
    # Indented as part of the list item, so that nothing in the traceback can end the block early.
    return summary + "\n" + "".join(f"  {part}\n" if part else "\n" for part in block.split("\n")) + "\n"


def _reason(item: TestResult) -> Line:
    if item.reason:
        return Words(item.reason)
    if item.attempts.rejected and not item.attempts.accepted:
        return f"the reference rejected all {plural(item.attempts.rejected, 'attempt')}"
    return item.outcome.replace("_", " ")


def _test_row(item: TestResult) -> str:
    profiles = joined(", ", ((Words(name, 40), f" {count:,}") for name, count in sorted(item.profiles.items())))
    missing = tuple((", no ", Words(name, 40), f": {_WHY[why]}") for name, why in item.no_profile.items())
    compared = f"{item.cases.aligned:,} / {item.cases.compared:,}"
    names = Code(item.test, 200), Code(item.candidate, 60), item.outcome.replace("_", " ")
    seconds = f"{item.duration_s:.1f} s"
    if item.compile_s >= LONG_COMPILING_S:
        seconds += f", {item.compile_s:.1f} s of it compiling"
    return row(*names, compared, f"{item.attempts.rejected:,}", (profiles, missing), seconds)
