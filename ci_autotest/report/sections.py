"""The parts of a page beside its findings: candidates, untested and broken tests, notes and the footer.

Each function returns a region with at most ``most`` blocks; ``size_budget`` decides which of them fit.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from ci_autotest.report.coverage import known_of
from ci_autotest.report.document import Code, Link, Strong, Words, joined
from ci_autotest.report.finding_facts import place_line
from ci_autotest.report.markdown_text import FOLD_END, bullet, fence, folded, head, markdown, row, unfolded
from ci_autotest.report.size_budget import Block, BlockForm, Region, fixed
from ci_autotest.report.size_text import size_sentence
from ci_autotest.report.verdict_line import partial_sentences, partly_compared
from ci_autotest.values.amounts import plural
from ci_autotest.values.result import LONG_COMPILING_S
from ci_autotest.values.verdict import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.document import Line
    from ci_autotest.report.links import Links
    from ci_autotest.values.coverage_values import CandidateCoverage, CoverageCounts
    from ci_autotest.values.result import BrokenTest, CandidateInfo, NoProfile, RunResult, TestResult
    from ci_autotest.values.verdict import Outcome

Part = tuple[Region, list[Block]]

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


def candidates_part(result: RunResult, most: int, rank: int) -> Part:
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


def broken_part(result: RunResult, most: int, ranks: tuple[int, int], links: Links | None) -> Part:
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


def silent_part(result: RunResult, most: int, rank: int) -> Part:
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


def unsupported_part(result: RunResult, most: int, rank: int) -> Part:
    """Return the tests of which something was compared and something was not, with the reasons."""
    partly = partly_compared(result)
    lines = [bullet((_pair(item), ": ", Words("; ".join(partial_sentences(item)), 400))) for item in partly[:most]]
    title = f"Compared in part ({len(partly):,} of {len(result.results):,})"
    return _listing("unsupported", title, lines, rank, _beyond(partly, most))


def notes_part(result: RunResult, most: int, rank: int) -> Part:
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


def fixed_part(result: RunResult, rank: int) -> Part:
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


def _fixed_blocks(result: RunResult, rank: int, lead: str, counts: str) -> Part:
    names = joined(", ", (Code(name, 150) for name in result.fixed[:_FIXED]))
    tail = (": ", names, ", …" if len(result.fixed) > _FIXED else "") if names else ""
    blocks = [Block("baseline", tuple(_sentence(rank, lead, ending) for ending in ((counts, tail), counts)))]
    return Region(name="baseline"), blocks


def tests_part(result: RunResult, rank: int) -> Part:
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


def coverage_part(result: RunResult, rank: int) -> Part:
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


def footer_part(result: RunResult, links: Links | None, rank: int) -> Part:
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


def _listing(name: str, title: str, lines: Sequence[str], rank: int, beyond: int) -> Part:
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
