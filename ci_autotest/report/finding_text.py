"""One finding as a section of a page, in the forms that the size budget chooses from, and as a page of its own."""

from __future__ import annotations

import io
import json
import re
import token
import tokenize
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from ci_autotest.report.document import Code, Strong, Words, joined
from ci_autotest.report.evidence import Evidence
from ci_autotest.report.finding_facts import anchor, facts, facts_line
from ci_autotest.report.finding_program import missing_program
from ci_autotest.report.markdown_text import anchored, bullet, fence, folded, head, heading, markdown, row
from ci_autotest.report.size_budget import Block, BlockForm
from ci_autotest.report.verdict_line import headline
from ci_autotest.values.amounts import amount_of, plural
from ci_autotest.values.finding import counts_against

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.report.document import Line
    from ci_autotest.report.evidence import Source
    from ci_autotest.report.links import Links
    from ci_autotest.values.finding import Finding, Location
    from ci_autotest.values.result import CandidateInfo, RunResult

#: How much of a finding a section shows.
Extent: TypeAlias = Literal["whole", "plain", "compact"]

_TENSORS_SHOWN: Final = 10
SECTIONS = "sections"
ACCEPTED = "accepted"

# A report may have been written by somebody else, and readers paste commands: a command must not contain anything that
# a shell interprets.
_COMMAND = re.compile(r"[\w./=:,@+~\[\] -]+")
_LONGEST_NAME: Final = 200
_PLAIN_SCALAR: Final = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
#: Words that YAML 1.1 reads as booleans or null.
_YAML_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
#: Characters of a line of code that a comment shows without scrolling.
WIDTH: Final = 96
#: Longest text that is tokenized; a longer one stays as it is.
_TOKENIZED_CHARS: Final = 100_000
_OPEN_BRACKETS, _CLOSE_BRACKETS = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a page knows beside the findings.

    Args:
        links: Addresses of files and of the artifact.
        source: Finds the saved program; ``None`` if the report's own text can be trusted.
        new: Ids that the baseline lacks; ``None`` without a baseline.
        candidates: By name.
        page: What tells the report from others of the same comment, for example a leg of a matrix.
    """

    links: Links | None = None
    source: Source | None = None
    new: tuple[str, ...] | None = None
    candidates: Mapping[str, CandidateInfo] = field(default_factory=dict)
    page: str = ""

    def of(self, result: RunResult) -> Setting:
        """Return the same with what a run says of its findings and candidates."""
        return replace(self, new=result.new, candidates={info.name: info for info in result.candidates})

    def is_new(self, finding: Finding) -> bool | None:
        """Whether the baseline lacks the finding; ``None`` without a baseline."""
        return None if self.new is None else finding.id in self.new

    def kernel(self, finding: Finding) -> Location | None:
        """Definition of the function that replaces the finding's operator, if it is known."""
        candidate = self.candidates.get(finding.candidate)
        return candidate.kernels.get(finding.operator) if candidate else None

    def is_on_gpu(self, finding: Finding) -> bool:
        """Whether the finding's candidate runs on CUDA."""
        candidate = self.candidates.get(finding.candidate)
        return candidate is not None and candidate.device.partition(":")[0] == "cuda"


def finding_block(finding: Finding, setting: Setting, ranks: tuple[int, int], *, is_open: bool) -> Block:
    """Return a finding's forms: whole, without its graph, and without its program; an accepted finding is only a row.

    Args:
        finding: Any.
        setting: What the page knows.
        ranks: Rank of the section, and of the section with its graph.
        is_open: Whether the section is open; otherwise it is folded under its headline.
    """
    as_section, as_whole = ranks
    if finding.known is not None:
        return Block(ACCEPTED, (BlockForm(as_section, ACCEPTED, partial(facts_line, finding)),))
    show = _section if is_open else _folded_section
    extents: tuple[tuple[int, Extent], ...] = ((as_whole, "whole"), (as_section, "plain"), (as_section, "compact"))
    forms = (BlockForm(rank, SECTIONS, partial(show, finding, setting, extent)) for rank, extent in extents)
    return Block(SECTIONS, tuple(forms))


def finding_page(finding: Finding, links: Links | None, *, with_program: bool) -> str:
    """Return the page beside ``repro.py``, which can be filed upstream as an issue."""
    shown = _shown(finding, with_program=with_program)
    parts = [
        heading(1, Words(headline(finding))),
        "## Describe the bug",
        markdown(_described(finding)),
        _facts_table(facts(finding, links)),
        *_grown(finding),
        *(("## To reproduce", *shown) if shown else ()),
        *_commands_here(finding),
        *_message(finding),
        *_variants(finding, with_program=with_program),
        *(("## Versions", markdown(Words(finding.versions))) if finding.versions else ()),
        *_hits(finding),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def issue_text(finding: Finding, candidates: Sequence[CandidateInfo]) -> str:
    """Return a finding as a report to whoever makes the candidate: nothing in it needs ci-autotest.

    Args:
        finding: The finding.
        candidates: Those of its run: a finding without a program has no versions of its own.
    """
    of_run = next((_version(info) for info in candidates if info.name == finding.candidate), "")
    parts = [
        heading(1, Words(headline(finding))),
        "## Describe the bug",
        markdown(_described(finding)),
        markdown(("Which side is wrong: ", Words(finding.blame), "; ", Words(finding.oracle), ".")),
        "## To reproduce",
        *_shown(_alone(finding), with_program=True),
        "## Versions",
        markdown(Words(finding.versions or of_run or "unknown")),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _version(info: CandidateInfo) -> str:
    """Return what a run knows of a candidate: its backend with its version, its mode, and other libraries."""
    libraries = (f"{name} {version}" for name, version in info.libraries.items())
    return ", ".join(part for part in (f"{info.backend} {info.version}".strip(), info.mode, *libraries) if part)


def _alone(finding: Finding) -> Finding:
    """Return a finding without the files that a reader elsewhere does not have."""
    return msgspec.structs.replace(finding, repro=None)


def _facts_table(found: Mapping[str, Line]) -> str:
    return head("", "") + "".join(row(*each) for each in found.items())


def _described(finding: Finding) -> Line:
    """Return the bug in sentences: what was expected, what was seen, and how it was confirmed."""
    candidate, reference = Words(finding.candidate_seen), Words(finding.reference_seen)
    if finding.kind in {"crash", "timeout"}:
        return joined(" ", (Words(f"{headline(finding).rstrip('.')}."), *_circumstances(finding)))
    if finding.kind == "randomness":
        again = " It did so again in a second process." if finding.confirmed else ""
        return candidate, "; expected: ", reference, f".{again}"
    seen: Line = ("expected ", reference, ", got ", candidate)
    pair = finding.difference.first_pair_decimal if finding.difference is not None else None
    is_of_elements = finding.kind in {"value", "gradient", "state"} or finding.reference_seen == finding.candidate_seen
    if pair is not None and is_of_elements:
        at = f" at {list(finding.first_index)}" if finding.first_index else ""
        seen = ("expected ", Words(pair[1]), at, ", got ", Words(pair[0]), " (", candidate, ")")
    if finding.kind == "nondeterminism":
        second, first = map(Words, pair) if pair is not None else (candidate, reference)
        seen = (first, " in the first run, ", second, " in the second")
    place: Line = ("the ", Words(finding.where)) if finding.where else "the result"
    return joined(" ", (("On the same inputs, ", place, " differs: ", seen, "."), *_circumstances(finding)))


def _circumstances(finding: Finding) -> list[Line]:
    """Return the sentences that follow what was seen."""
    sentences: list[Line] = []
    if finding.detail:
        sentences.append((Words(finding.detail.splitlines()[0].rstrip(".")), "."))
    if finding.accumulated:
        sentences.append("No step is misaligned on its own: the error accumulates.")
    if finding.layer:
        sentences.append(("The layer at fault is ", Words(finding.layer), ": the layers above it are aligned."))
    if finding.confirmed:
        sentences.append("It was confirmed in a fresh process, where each side ran twice.")
    return sentences


def _grown(finding: Finding) -> list[str]:
    """Return how an accumulated error grows, step by step."""
    if not finding.growth:
        return []
    rows = [head("step", "greatest difference", "ULP")]
    for item in finding.growth:
        absolute = "not finite" if item.greatest_absolute is None else amount_of(item.greatest_absolute, ".3g")
        rows.append(row(Code(item.what, 80), absolute, "" if item.greatest_ulp is None else f"{item.greatest_ulp:,}"))
    return ["How the error grows:", "".join(rows)]


def _variants(finding: Finding, *, with_program: bool) -> list[str]:
    """Return the other smallest programs of the same identity."""
    if not finding.variants or not with_program:
        return []
    parts = ["## Other programs with the same finding"]
    for item in finding.variants:
        where = markdown((Words(item.headline), " (", Code(item.test), f", case {item.case})"))
        parts += [where, fence(item.program, "python")]
    return parts


def _hits(finding: Finding) -> list[str]:
    """Return the cases that show the finding, by test."""
    if not finding.hits:
        return []
    lines = []
    for hit in finding.hits:
        more = f" and {hit.count - len(hit.cases):,} more" if hit.count > len(hit.cases) else ""
        cases = ", ".join(map(str, hit.cases))
        of = f": {hit.count:,} of {plural(hit.of_cases, 'case')} ({cases}{more})"
        lines.append(bullet((Code(hit.test), of)))
    return [folded("cases that show it", "".join(lines).rstrip("\n"))]


def _shown(finding: Finding, *, with_program: bool) -> list[str]:
    return (_program if with_program else _without_room)(Evidence(program=finding.program), finding)


def _section(finding: Finding, setting: Setting, extent: Extent) -> str:
    title = markdown(Strong(Words(headline(finding))))
    return f"{anchored(anchor(finding, setting.page))}{title}\n\n{_body(finding, setting, extent)}\n\n"


def _folded_section(finding: Finding, setting: Setting, extent: Extent) -> str:
    title = Strong(Words(headline(finding)))
    return f"{folded(title, _body(finding, setting, extent), anchor=anchor(finding, setting.page))}\n\n"


def _body(finding: Finding, setting: Setting, extent: Extent) -> str:
    evidence = _evidence(finding, setting)
    parts = [
        _facts_table(
            facts(finding, setting.links, is_new=setting.is_new(finding), kernel=setting.kernel(finding)),
        ),
        *(_program(evidence, finding) if extent != "compact" else _without_room(evidence, finding)),
        *(
            [folded("graph of the program", fence(evidence.graph, "mermaid"))]
            if extent == "whole" and evidence.graph
            else ()
        ),
        *(_tensors(evidence) if extent != "compact" else ()),
        *(_detail(finding) if extent != "compact" else ()),
        *(_grown(finding) if extent != "compact" else ()),
        *_commands(finding, setting),
        *(_acceptance(finding) if extent != "compact" else ()),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _acceptance(finding: Finding) -> list[str]:
    """Return the row for the configuration that accepts the difference, folded away."""
    known = known_row(finding)
    return [folded("accept this difference in autotest.yml", fence(known, "yaml"))] if known else []


def _evidence(finding: Finding, setting: Setting) -> Evidence:
    """Return the program, from its file or from the report, with lines that fit the page."""
    found = Evidence(program=finding.program) if setting.source is None else setting.source(finding) or Evidence()
    return replace(found, program=fitted(found.program))


def _program(evidence: Evidence, finding: Finding) -> list[str]:
    if evidence.program:
        return [fence(evidence.program, "python")]
    if evidence.refusal:
        return [markdown((Words(evidence.refusal), " See ", Code(f"findings/{finding.id}", 220), "."))]
    return _without_program(finding)


def _without_program(finding: Finding) -> list[str]:
    sentence = missing_program(finding)
    return [markdown((Words(sentence[0].upper() + sentence[1:]), "."))] if sentence else []


def _without_room(evidence: Evidence, finding: Finding) -> list[str]:
    if not evidence.program:
        return _without_program(finding)
    lines = evidence.program.count("\n") + 1
    place = Code(f"findings/{finding.id}", 220)
    return [markdown((f"The program ({lines:,} lines) does not fit here: it is in the artifact, in ", place, "."))]


def _tensors(evidence: Evidence) -> list[str]:
    """Return the table of the tensors that the program names but does not contain."""
    if not evidence.tensors:
        return []
    shown = [
        row((Code(fact.name, 80), f", {fact.dtype}", Words(str(list(fact.shape)), 80)), f"{fact.size_bytes:,}",
            Code(fact.sha256) if fact.sha256 else "not read")
        for fact in evidence.tensors[:_TENSORS_SHOWN]
    ]  # fmt: skip
    rest = len(evidence.tensors) - _TENSORS_SHOWN
    more = f"\n{rest:,} more in the artifact." if rest > 0 else ""
    return [head("tensor", "bytes", "sha256", numbers=("bytes",)) + "".join(shown) + more]


def _detail(finding: Finding) -> list[str]:
    """Return the candidate's exception, or the whole message if the finding has no numbers."""
    detail = finding.detail or ("" if finding.difference is not None else finding.message)
    return [fence(detail, "text")] if detail.strip() else []


def _message(finding: Finding) -> list[str]:
    parts = [item for item in (finding.message, finding.detail) if item.strip()]
    return [folded("full message", fence("\n\n".join(parts), "text"))] if parts else []


def _commands(finding: Finding, setting: Setting) -> list[str]:
    """Return the shell lines that run a finding again; without links, those for the machine that found it."""
    links = setting.links
    if links and (again := links.replay(finding.id, on_gpu=setting.is_on_gpu(finding))):
        return [fence(again, "sh")]
    return _commands_here(finding)


def _commands_here(finding: Finding) -> list[str]:
    command = finding.replay if _COMMAND.fullmatch(finding.replay) else ""
    # Both lines start in the folder of the run: `replay` finds the configuration from there.
    folder = command.rpartition(" ")[2] or f"findings/{finding.id}"
    lines = [f"python {folder}/repro.py  # needs only the candidate"] if finding.repro is not None else []
    if command:
        lines.append(f"{command}  # the same, with ci-autotest")
    return [fence("\n".join(lines), "sh")] if lines else []


def known_row(finding: Finding) -> str:
    """Return the row of ``known``; "" for a finding that does not count or whose names do not fit a row."""
    names = {"operator": finding.operator, "candidate": finding.candidate, "kind": finding.kind}
    if not counts_against(finding) or not all(_is_name(name) for name in names.values()):
        return ""
    rows = [f"{key}: {_scalar(name)}" for key, name in names.items()]
    return "\n    ".join(["known:\n  - " + rows[0], *rows[1:], "reason: say why this is acceptable"])


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable()


def _scalar(name: str) -> str:
    """Return a YAML scalar, in JSON's quotes unless the plain word is unambiguous."""
    return (
        name
        if _PLAIN_SCALAR.fullmatch(name) and name.lower() not in _YAML_WORDS
        else json.dumps(name, ensure_ascii=False)
    )


# A page is laid out again until it fits, and tokenizing is most of that time.
@lru_cache(maxsize=64)
def fitted(code: str, width: int = WIDTH) -> str:
    """Return ``code`` with long lines broken after commas inside brackets; text that is not Python stays as it is."""
    lines = code.split("\n")
    if len(code) > _TOKENIZED_CHARS or all(len(line) <= width for line in lines):
        return code
    try:
        commas = _commas(code)
    except (tokenize.TokenError, SyntaxError):
        return code
    return "\n".join(
        piece
        for number, line in enumerate(lines, 1)
        for piece in (_broken(line, commas.get(number, []), width) if len(line) > width else [line])
    )


def _commas(code: str) -> dict[int, list[int]]:
    """Return the columns after commas inside brackets, by line."""
    found: dict[int, list[int]] = {}
    depth = 0
    for item in tokenize.generate_tokens(io.StringIO(code).readline):
        if item.type == token.OP:
            depth += (item.string in _OPEN_BRACKETS) - (item.string in _CLOSE_BRACKETS)
            if item.string == "," and depth > 0:
                found.setdefault(item.end[0], []).append(item.end[1])
    return found


def _broken(line: str, columns: list[int], width: int) -> list[str]:
    """Return the pieces of a line, each broken at the last comma that fits the width."""
    indent, end = " " * (len(line) - len(line.lstrip()) + 4), len(line.rstrip())
    pieces, start, lead = [], 0, ""
    for at, following in pairwise([*columns, end]):
        if at < end and len(lead) + following - start > width:
            pieces.append(lead + line[start:at])
            start, lead = at + (line[at] == " "), indent
    return [*pieces, lead + line[start:]]
