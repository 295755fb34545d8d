"""A loader's verdict: what its ranks observed, compared, in words, with the repro of a finding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.loader.comparison import problems, remarks
from ci_autotest.loader.repro import script
from ci_autotest.values.verdict import Misalignment, Verdict, unsupported_verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.loader.comparison import Problem
    from ci_autotest.loader.observations import Observations, ObservedGenerator
    from ci_autotest.loader.repro import Subject


class Judgement(NamedTuple):
    """What is known about a loader after it ran.

    Attributes:
        verdict: Aligned, misaligned with kind ``randomness``, or unsupported without a sample.
        script: The repro of a finding; empty without one.
        notes: Sentences for the report.
    """

    verdict: Verdict
    script: str = ""
    notes: tuple[str, ...] = ()


def judged(ranks: Sequence[Observations], subject: Subject) -> Judgement:
    """Return the judgement on a loader.

    Args:
        ranks: What each rank observed.
        subject: How the loader is made again.
    """
    seen = ranks[0]
    if not seen.epochs[0]:
        why = Unsupported(UnsupportedReason.NO_SAMPLES, f"the loader of {seen.dataset} gives no sample")
        return Judgement(unsupported_verdict(why))
    found = problems(ranks)
    verdict = _verdict_of(found, seen, Path(subject.root))
    notes = tuple(remarks(ranks))
    return Judgement(verdict, script(found[0], seen, subject, verdict) if found else "", notes)


# The words for what is wrong with a loader: what is shared, where it comes from, and what to write instead.


_OTHERS: Final = 3
#: How a generator of each class is made from the seed of its worker.
_MAKERS: Final = {
    "numpy.random.Generator": "numpy.random.default_rng(torch.initial_seed())",
    # numpy refuses a seed of more than 32 bits here.
    "numpy.random.RandomState": "numpy.random.RandomState(torch.initial_seed() % 2**32)",
    "random.Random": "random.Random(torch.initial_seed())",
    "torch.Generator": "torch.Generator().manual_seed(torch.initial_seed())",
}
_EXPECTED: Final = {
    "workers": "every worker draws numbers of its own",
    "epochs": "every epoch draws numbers of its own",
    "ranks": "every rank draws numbers of its own",
    "hidden": "every worker draws numbers of its own",
    "whole": "the workers share the items between them",
    "items": "the items of an epoch without workers",
    "rows": "every rank has rows of its own",
    "order": "every epoch has an order of its own",
}


def _verdict_of(found: Sequence[Problem], seen: Observations, root: Path) -> Verdict:
    """Return the verdict on a loader: aligned, or kind ``randomness`` with one line for each problem.

    Args:
        found: The problems, the most telling first.
        seen: What was observed of the first rank.
        root: The configuration's folder; files are shown relative to it.
    """
    if not found:
        return Verdict(outcome="aligned")
    lines = [line for problem in found for line in _lines(problem, seen, root)]
    return Verdict(
        outcome="misaligned", operator=seen.dataset, target=seen.dataset, kind="randomness",
        misalignment=Misalignment(
            kind="randomness", step=-1, candidate=_sentence(found[0]), reference=_EXPECTED[found[0].pattern],
            detail="\n".join(lines),
        ),
    )  # fmt: skip


def _sentence(problem: Problem) -> str:
    """Return what is shared, in one sentence without a full stop."""
    who, held = _numbered(problem), problem.generator
    if held is not None:
        return f"{who} draw the same numbers from {held.place}"
    return {
        "hidden": f"{who} get the same random values, which no generator of Python, numpy or torch gives",
        "whole": f"{who} give the same items, so that an epoch has each of them several times",
        "items": f"{problem.equal} of {problem.of} items are others than without workers",
        "rows": f"{who} get the same {problem.equal} rows",
        "order": f"{who} have the same order: set_epoch does not reach the DistributedSampler at {problem.place}",
    }[problem.pattern]


def _lines(problem: Problem, seen: Observations, root: Path) -> list[str]:
    """Return a problem in lines: the sentence, the generator, the samples, and what to write instead."""
    lines = [_sentence(problem)]
    held = problem.generator
    if held is not None:
        made = f", made in {relative(held.made, root)}" if held.made else ""
        by_init = f", seeded by worker_init_fn in {relative(seen.init, root)}" if held.is_global and seen.init else ""
        numbers = f"; first equal numbers: {', '.join(problem.numbers)}" if problem.numbers else ""
        lines.append(f"{held.place} is a {held.kind}{made}{by_init}{numbers}")
    if problem.others:
        more = len(problem.others) - _OTHERS
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"the same holds for {', '.join(problem.others[:_OTHERS])}{rest}")
    if problem.equal and problem.pattern not in {"items", "order"}:
        what = "samples repeat the numbers of another one" if held is not None else "samples repeat another one"
        lines.append(f"{problem.equal} of {problem.of} {what}")
    return [*lines, f"write instead: {_instead(problem, seen)}"]


def _instead(problem: Problem, seen: Observations) -> str:
    held = problem.generator
    if problem.pattern == "whole":
        return "in __iter__, info = get_worker_info() and islice(items, info.id, None, info.num_workers)"
    if problem.pattern == "items":
        return "a sampler whose items do not depend on the workers: give it a generator with a seed"
    if problem.pattern == "rows":
        return "a DistributedSampler with the rank of this process, and the same seed on every rank"
    if problem.pattern == "order":
        return "call set_epoch(epoch) of that sampler before every epoch; a wrapper needs a set_epoch that passes it on"
    if problem.pattern == "ranks":
        return "add the rank to the seed of this process, for example torch.manual_seed(seed + rank)"
    if held is None:
        return "seed that library in worker_init_fn with torch.initial_seed(), which differs in every worker and epoch"
    return _instead_of_generator(problem, held, seen)


def _instead_of_generator(problem: Problem, held: ObservedGenerator, seen: Observations) -> str:
    if held.is_global:
        return (
            "no worker_init_fn, because torch seeds this generator in each worker; or torch.initial_seed() as its seed"
        )
    if held.access.startswith("dataset."):
        made = _MAKERS.get(held.kind, "a new generator")
        access = held.access.replace("dataset.", "get_worker_info().dataset.", 1)
        again = "" if problem.pattern == "workers" or not seen.is_persistent else " in each epoch"
        return f"in worker_init_fn{again}, {access} = {made}"
    return "make it in each worker from torch.initial_seed(), or draw with torch.rand, which torch seeds in each worker"


def relative(line: str, root: Path) -> str:
    """Return ``file:line`` relative to a folder, or to its library."""
    file, _, number = line.rpartition(":")
    path = Path(file)
    if path.is_relative_to(root):
        return f"{path.relative_to(root).as_posix()}:{number}"
    parts = path.parts
    at = parts.index("site-packages") + 1 if "site-packages" in parts else len(parts) - 1
    return f"{'/'.join(parts[at:])}:{number}"


def _numbered(problem: Problem) -> str:
    noun = {"epochs": "epoch", "ranks": "rank", "rows": "rank", "order": "epoch"}.get(problem.pattern, "worker")
    numbers = [str(number) for number in problem.who]
    if len(numbers) < 2:  # noqa: PLR2004 - one alone
        return f"{noun} {''.join(numbers)}"
    return f"{noun}s {', '.join(numbers[:-1])} and {numbers[-1]}"
