"""What a reader sees of a candidate's speed: lines for the terminal, a part of the comment and of the summary."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ci_autotest.report.document import Code, Strong, Words
from ci_autotest.report.markdown_text import head, markdown, row
from ci_autotest.report.size_budget import Block, Region, fixed
from ci_autotest.values.speed import is_too_slow, is_wrong_at_size

if TYPE_CHECKING:
    from ci_autotest.values.result import RunResult
    from ci_autotest.values.speed import Ratio, SpeedResult

#: Verdicts in the order in which results are shown.
_ORDER: Final = ("crashed", "misaligned", "slower", "faster", "same", "cannot_tell", "not_timed")
_NAMES: Final = {
    "crashed": "crashed at larger sizes",
    "misaligned": "misaligned at larger sizes",
    "cannot_tell": "cannot tell",
    "not_timed": "not timed",
}
#: Verdicts that the comment and the terminal show one by one; the summary and report.json have all.
_TOLD: Final = frozenset({"crashed", "misaligned", "slower", "faster"})


def speed_sentence(result: RunResult) -> str:
    """Return how many results there are by verdict; empty if nothing was to be timed."""
    counts = Counter(map(verdict_text, sorted(result.speed, key=lambda item: _ORDER.index(item.verdict))))
    found = [f"{count:,} {name}" for name, count in counts.items()]
    changed = Counter(item.change for item in result.speed if item.change in {"slower", "faster"})
    since = [f"{count:,} {name} than in the baseline" for name, count in sorted(changed.items(), key=str, reverse=True)]
    return f"speed: {', '.join([*found, *since])}" if result.speed else ""


def speed_lines(result: RunResult, most: int = 40) -> list[str]:
    """Return the lines for the terminal: the counts, then each result that is not the same as before."""
    shown = in_reading_order(result, has_all=False)
    lines = [f"  {item.test} on {item.candidate}: {spoken(item)}" for item in shown[:most]]
    more = [f"  and {len(shown) - most:,} more, in report.json"] if len(shown) > most else []
    why = [
        f"  {count:,} not timed: {reason}"
        for reason, count in Counter(item.reason for item in result.speed if item.verdict == "not_timed").most_common(5)
    ]
    return [speed_sentence(result), *lines, *more, *why] if result.speed else []


def speed_part(result: RunResult, most: int, rank: int, *, has_all: bool) -> tuple[Region, list[Block]]:
    """Return the table of times; of the comment only what is slower, faster or wrong."""
    shown = in_reading_order(result, has_all=has_all)
    sentence = speed_sentence(result)
    lead = f"{markdown(Strong(Words(sentence.capitalize())))}\n\n"
    heads = ("test", "candidate", "inputs", "pass", "times the reference", "reference", "verdict")
    table = head(*heads, numbers=heads[4:6]) if shown else ""
    region = Region(
        name="speed", lead=lead + table, tail="\n", more="\n{count} more times are in report.json.\n\n",
        beyond=max(0, len(shown) - most),
    )  # fmt: skip
    if not result.speed:
        return Region(name="speed"), []
    rows = [fixed("speed", _row(item), rank) for item in shown[:most]]
    return region, rows or [fixed("speed", "", rank)]


def spoken(item: SpeedResult) -> str:
    """Return a result in one sentence."""
    where = (
        f"{item.phase} of {', '.join(item.operators[:3]) or 'its body'} on {', '.join(item.inputs[:3]) or 'no input'}"
    )
    if item.ratio is None:
        return f"{verdict_text(item)}: {reason_text(item)}"
    against = "the graph before the pass" if item.against == "original" else "the reference"
    since = f"; {ratio_text(item.before)} in the baseline" if item.before is not None else ""
    counts = item.instructions
    counted = f"; {counts.candidate / max(counts.reference, 1):.2f} times the instructions" if counts else ""
    why = f"; {item.reason}" if item.reason else ""
    return (
        f"{verdict_text(item)}: {where} takes {ratio_text(item.ratio)} times {against}, "
        f"{duration_text(item.reference_s)}{since}{counted}{why}"
    )


def verdict_text(item: SpeedResult) -> str:
    """Return the verdict in words."""
    return "accepted at larger sizes" if item.known is not None else _NAMES.get(item.verdict, item.verdict)


def reason_text(item: SpeedResult) -> str:
    """Return why it was not timed or cannot be told, and why a difference is accepted."""
    return item.reason if item.known is None else f"{item.reason}; accepted: {item.known}"


def ratio_text(ratio: Ratio) -> str:
    """Return a ratio with its interval, ``1.52 (1.48 to 1.60)``."""
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def in_reading_order(result: RunResult, *, has_all: bool) -> list[SpeedResult]:
    """Return what is wrong, then what is slower, then the rest; without ``has_all`` only what a reader must know."""
    chosen = [item for item in result.speed if has_all or item.verdict in _TOLD or item.change in {"slower", "faster"}]
    return sorted(
        chosen,
        key=lambda item: (
            not is_wrong_at_size(item), not is_too_slow(item), _ORDER.index(item.verdict),
            -(item.ratio.median if item.ratio is not None else 0.0),
        ),
    )  # fmt: skip


def _row(item: SpeedResult) -> str:
    ratio, since = "", ""
    if item.ratio is not None:
        ratio = ratio_text(item.ratio)
    if item.change is not None and item.before is not None:
        since = f"; {item.change} against the baseline's {ratio_text(item.before)}"
    if item.instructions is not None:
        since += f"; {item.instructions.candidate / max(item.instructions.reference, 1):.2f} times the instructions"
    name = Strong(verdict_text(item)) if item.verdict in _TOLD else verdict_text(item)
    why = (": ", Words(reason_text(item), 200)) if item.reason else ""
    against = " (the graph before the pass)" if item.against == "original" else ""
    return row(
        Code(item.test, 150), Code(item.candidate, 60), Words(", ".join(item.inputs), 80), item.phase, ratio,
        f"{duration_text(item.reference_s)}{against}" if item.reference_s else "", (name, why, since),
    )  # fmt: skip


def duration_text(seconds: float) -> str:
    """Return a duration with the unit in which it has one to three digits."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:  # noqa: PLR2004 - the next unit
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
