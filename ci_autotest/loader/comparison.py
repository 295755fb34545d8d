"""Comparison of the samples of a loader: which workers, epochs and ranks draw the same numbers or give the same items.

Two samples draw the same numbers from a generator if it had the same state before both. So a dataset that is constant,
deterministic or cached is no finding: nothing was drawn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ci_autotest.loader.observations import LoaderSample, Observations, ObservedGenerator, SampleDraws

Pattern: TypeAlias = Literal["workers", "epochs", "ranks", "hidden", "whole", "items", "rows", "order"]


class Problem(NamedTuple):
    """Something that a loader's workers, epochs or ranks share and should not.

    Attributes:
        pattern: ``workers``, ``epochs`` and ``ranks`` draw the same numbers; ``hidden``: workers get equal random
            values of a generator that Python does not see; ``whole``: every worker gives all items; ``items``: other
            items than without workers; ``rows``: ranks get the same rows; ``order``: each epoch has the same order.
        who: Numbers of the workers, epochs or ranks that share.
        generator: The generator, if one is shared.
        numbers: The first equal numbers.
        equal: Samples that repeat what another one has.
        of: Samples that were compared.
        place: Where, if it is no generator.
        others: Places of further generators that are shared in the same way.
    """

    pattern: Pattern
    who: tuple[int, ...]
    generator: ObservedGenerator | None = None
    numbers: tuple[str, ...] = ()
    equal: int = 0
    of: int = 0
    place: str = ""
    others: tuple[str, ...] = ()


class _DrawnSample(NamedTuple):
    """A sample that drew from a generator, and where it ran."""

    rank: int
    epoch: int
    sample: LoaderSample
    draw: SampleDraws


def problems(ranks: Sequence[Observations]) -> list[Problem]:
    """Return what is wrong with a loader, the most telling first.

    Args:
        ranks: The observations of each rank.
    """
    first = ranks[0]
    reseeded = {key for each in ranks for key in each.reseeded}
    drawn: dict[str, list[_DrawnSample]] = defaultdict(list)
    for rank, each in enumerate(ranks):
        for epoch, samples in enumerate(each.epochs):
            for sample in samples:
                for draw in sample.draws:
                    if draw.generator not in reseeded:
                        drawn[draw.generator].append(_DrawnSample(rank, epoch, sample, draw))
    generators = {key: item for each in ranks for key, item in each.generators.items()}
    found = [problem for key, items in drawn.items() for problem in _shared(generators[key], items)]
    found = _joined(found)
    return [*found, *_hidden(first), *_items(first), *_rows(ranks), *_order(first)]


def _shared(generator: ObservedGenerator, drawn: list[_DrawnSample]) -> list[Problem]:
    """Return how samples share the numbers of one generator: across workers, else epochs; and across ranks."""
    found = []
    first = [item for item in drawn if (item.rank, item.epoch) == (0, 0)]
    across: tuple[tuple[Pattern, list[_DrawnSample], Callable[[_DrawnSample], int]], ...] = (
        ("workers", first, lambda item: item.sample.worker),
        ("epochs", [item for item in drawn if item.rank == 0], lambda item: item.epoch),
        ("ranks", [item for item in drawn if item.epoch == 0], lambda item: item.rank),
    )
    for pattern, items, of in across:
        who, equal, numbers = _equal(items, of)
        if who:
            found.append(Problem(pattern, who, generator, numbers, equal, len(items)))
    return found


def _equal(
    drawn: Iterable[_DrawnSample], of: Callable[[_DrawnSample], int]
) -> tuple[tuple[int, ...], int, tuple[str, ...]]:
    """Return who shares a state, how many samples repeat one, and the numbers of the first equal state."""
    groups: dict[str, list[_DrawnSample]] = defaultdict(list)
    for item in drawn:
        token = _token(item)
        if token:
            groups[token].append(item)
    # One worker, epoch or rank that meets a state twice shares it with nobody.
    shared = [group for group in groups.values() if len({of(item) for item in group}) > 1]
    who = sorted({of(item) for group in shared for item in group})
    numbers = next((item.draw.numbers for group in shared for item in group if item.draw.numbers), ())
    return tuple(who), sum(len(group) - 1 for group in shared), numbers


def _token(item: _DrawnSample) -> str:
    """Return what stands for the numbers that a sample drew; empty if it is unknown.

    The first sample of a worker that makes a generator is known by the state after it. A later sample that makes one
    has a generator of its own, whose numbers may depend on the item.
    """
    if item.draw.before:
        return item.draw.before
    return f"made {item.draw.after}" if item.sample.position == 0 else ""


def _joined(found: list[Problem]) -> list[Problem]:
    """Return one problem for each pattern and kind of generator: a pipeline of transforms may hold a dozen of them.

    What workers share, epochs share too unless the workers live on: only the first pattern of a generator is told.
    """
    groups: dict[tuple[str, tuple[int, ...], str], list[Problem]] = {}
    told: set[str] = set()
    for problem in found:
        held = problem.generator
        assert held is not None  # noqa: S101 - the caller gives problems of generators
        if problem.pattern == "epochs" and held.access in told:
            continue
        told.add(held.access)
        groups.setdefault((problem.pattern, problem.who, held.kind), []).append(problem)
    # The global generators are drawn from by a library too, so that one of the user's own comes first.
    joined = [sorted(group, key=lambda item: not item.numbers) for group in groups.values()]
    merged = [
        group[0]._replace(others=tuple(item.generator.place for item in group[1:] if item.generator))
        for group in joined
    ]
    return sorted(merged, key=lambda item: item.pattern != "workers")


def _hidden(seen: Observations) -> list[Problem]:
    """Return random values that no known generator gave and that workers share, from the samples of equal items.

    A worker that gets two values for one item, while nothing that Python holds changed, drew them somewhere else.
    """
    if any(sample.draws or sample.moves_state or not sample.digest for sample in seen.probe):
        return []
    by_worker: dict[int, list[LoaderSample]] = defaultdict(list)
    for sample in seen.probe:
        if not sample.is_collation:
            by_worker[sample.worker].append(sample)
    rows = {worker: tuple(sample.digest for sample in samples) for worker, samples in by_worker.items()}
    is_random = any(
        one.items == two.items and one.digest != two.digest
        for samples in by_worker.values()
        for one, two in pairwise(samples)
    )
    same = [worker for worker, row in sorted(rows.items()) if list(rows.values()).count(row) > 1]
    if not is_random or not same:
        return []
    equal = sum(len(row) for row in rows.values()) - sum(len(row) for row in set(rows.values()))
    return [Problem("hidden", tuple(same), equal=equal, of=sum(map(len, rows.values())))]


def _items(seen: Observations) -> list[Problem]:
    """Return whether an epoch with workers has other items than one without."""
    with_workers, alone = _keys(seen, seen.epochs[0]), _keys(seen, seen.alone)
    if not alone or not with_workers:
        return []
    if seen.is_iterable:
        return _read_whole(seen, with_workers, alone)
    if (
        not (seen.is_whole and seen.is_alone_whole)
        or with_workers == alone
        or with_workers.total() != alone.total()
        or _is_sampled(alone)
    ):
        return []
    different = (with_workers - alone).total()
    return [Problem("items", (), equal=different, of=with_workers.total())]


def _read_whole(seen: Observations, with_workers: Counter[str], alone: Counter[str]) -> list[Problem]:
    """Return whether several workers of an ``IterableDataset`` give the same items."""
    workers = len({sample.worker for sample in seen.epochs[0]})
    owners: dict[str, set[int]] = defaultdict(set)
    for sample in seen.epochs[0]:
        if not sample.is_collation and sample.digest:
            owners[sample.digest].add(sample.worker)
    repeated = sum(len(who) - 1 for who in owners.values())
    # If the dataset itself gives equal items, two workers may rightly give the same one.
    is_told_apart = max(alone.values()) == 1
    of = with_workers.total()
    who = tuple(sorted({worker for group in owners.values() if len(group) > 1 for worker in group}))
    if is_told_apart and repeated:
        return [Problem("whole", who, equal=repeated, of=of)]
    # Random samples differ, so only their number tells. A loader that fills up its last batches has a few more.
    if seen.is_alone_whole and workers > 1 and 2 * of >= 3 * alone.total():
        return [Problem("whole", tuple(range(workers)), equal=of - alone.total(), of=of)]
    return []


def _keys(seen: Observations, samples: Iterable[LoaderSample]) -> Counter[str]:
    own = [sample for sample in samples if not sample.is_collation]
    return Counter(sample.digest for sample in own) if seen.is_iterable else Counter(chain(*(s.items for s in own)))


def _is_sampled(alone: Counter[str]) -> bool:
    """Whether items are drawn with replacement, so that no two epochs have the same ones."""
    return max(alone.values()) > 1


def _rows(ranks: Sequence[Observations]) -> list[Problem]:
    """Return whether two ranks get the same rows, apart from the few that fill up the last rank."""
    own = [set(_keys(each, each.epochs[0])) for each in ranks]
    for number, one in enumerate(own):
        for other, two in enumerate(own[:number]):
            equal = len(one & two)
            if min(len(one), len(two)) and 2 * equal >= min(len(one), len(two)) and equal >= len(ranks):
                return [Problem("rows", (other, number), equal=equal, of=len(one))]
    return []


def _order(seen: Observations) -> list[Problem]:
    """Return whether a sampler that shuffles gives every epoch the same order."""
    orders = [tuple(chain(*(s.items for s in samples))) for samples in seen.epochs]
    if not seen.distributed or len(orders) < 2 or not orders[0] or len(set(orders)) > 1:  # noqa: PLR2004 - two epochs to compare
        return []
    return [
        Problem("order", tuple(range(len(orders))), equal=len(orders[0]), of=len(orders[0]), place=seen.distributed)
    ]


def remarks(ranks: Sequence[Observations]) -> list[str]:
    """Return what a second loader of the same seed says: whether its order and its samples are the same."""
    first = ranks[0]
    samples, again = first.epochs[0], first.again
    if [sample.items for sample in samples] != [sample.items for sample in again]:
        return ["two loaders that are made with the same seed give another order"]
    if [sample.digest for sample in samples] != [sample.digest for sample in again]:
        return ["two loaders that are made with the same seed give other samples in the same order"]
    return []
