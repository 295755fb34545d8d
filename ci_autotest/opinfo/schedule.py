"""The schedule of an entry: which sample, of which dtype and in which variant, is case k.

It depends on the entry and its samples alone, never on how many cases are asked for: a longer run continues a shorter
one. Samples of the first dtype take a third of the cases, their variants another, and the other dtypes and the calls
that must raise share the rest; what runs out leaves its turns to the others.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.backends.nest import tensors_in
from ci_autotest.opinfo.database import seeded
from ci_autotest.opinfo.names import CONJUGATE, ERROR, IN_PLACE, NON_CONTIGUOUS, ORDINARY, OUT
from ci_autotest.values.case import test_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ci_autotest.opinfo.database import OpInfoEntry, OpInfoSample

#: The dtype that every other one is second to, where an entry has it.
_FIRST: Final = "float32"
_COMPLEX: Final = "complex64"
#: Samples of the first dtype that are generated at once; doubled whenever more are needed.
_AT_ONCE: Final = 8
#: Memory for samples in a process, and of a sample without its tensors.
_KEPT_BYTES: Final = 1 << 26
_SAMPLE_BYTES: Final = 1 << 11


class SampleSpot(NamedTuple):
    """What a case is made of: sample ``number`` of a dtype, and how the operator is called with it."""

    variant: str
    dtype: str
    number: int


class Samples:
    """The samples of an entry by dtype, always the same for one root seed.

    How many there are is kept as far as it is known, and the samples themselves only as long as they are among the last
    that were used in this process: a run goes through all tests in turn.

    Args:
        entry: The entry.
        test: Id of its test.
        seed: Root seed of the run.
        kept: The samples of all entries that were used last.
    """

    def __init__(self, entry: OpInfoEntry, test: str, seed: int, kept: KeptSamples) -> None:
        self._entry, self._test, self._seed, self._kept = entry, test, seed, kept
        self._known: dict[str, tuple[int, bool]] = {}

    def has(self, dtype: str, index: int) -> bool:
        """Whether there is a sample of that number; without a dtype, a call that must raise."""
        if (size := self._entry.size(dtype)) is not None:
            return index < size
        count, is_whole = self._known.get(dtype, (0, False))
        return index < count or (not is_whole and index < len(self._upto(dtype, index + 1)))

    def get(self, dtype: str, index: int) -> OpInfoSample:
        """Return a sample; without a dtype, a call that must raise."""
        return self._upto(dtype, index + 1)[index]

    def _upto(self, dtype: str, count: int) -> list[OpInfoSample]:
        found = self._kept.get((self._test, dtype))
        if found is None or (len(found) < count and not self._known[dtype][1]):
            size = _AT_ONCE if dtype == _FIRST else 1
            while size < count:
                size *= 2
            # From the first one on, because the samples before have moved the generators.
            with seeded(test_key(self._seed, f"{self._test}\0{dtype}") & 0x7FFF_FFFF):
                every = self._entry.samples(dtype) if dtype else self._entry.errors()
                found = list(islice(every, size))
            if len(found) > self._known.get(dtype, (-1, False))[0]:
                self._known[dtype] = len(found), len(found) < size
            self._kept.put((self._test, dtype), found)
        return found


class KeptSamples:
    """The lists of samples that were used last in this process, by test and dtype, within a limit of memory."""

    def __init__(self) -> None:
        self._lists: OrderedDict[tuple[str, str], list[OpInfoSample]] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[str, str]) -> list[OpInfoSample] | None:
        """Return a list, which is then the one that was used last."""
        if key in self._lists:
            self._lists.move_to_end(key)
        return self._lists.get(key)

    def put(self, key: tuple[str, str], samples: list[OpInfoSample]) -> None:
        """Keep a list; the ones that were not used for longest are dropped."""
        self._bytes -= size_bytes(self._lists.pop(key, []))
        self._lists[key] = samples
        self._bytes += size_bytes(samples)
        while self._bytes > _KEPT_BYTES and len(self._lists) > 1:
            _, dropped = self._lists.popitem(last=False)
            self._bytes -= size_bytes(dropped)


def size_bytes(samples: Iterable[OpInfoSample]) -> int:
    """Return the memory of the samples' tensors, with some for each sample itself."""
    return sum(_SAMPLE_BYTES + sum(map(_storage_bytes, tensors_in([one.args, one.kwargs]))) for one in samples)


def _storage_bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else 0


def spots(
    entry: OpInfoEntry, samples: Samples, dtypes: Sequence[str], left_out: Collection[str] = ()
) -> Iterator[SampleSpot]:
    """Yield the cases of an entry in order.

    Args:
        entry: The entry.
        samples: Its samples.
        dtypes: Dtypes to test, in order of importance.
        left_out: Variants to leave out.
    """
    first, *others = dtypes
    conjugate = CONJUGATE not in left_out and entry.has_conjugate and _COMPLEX in dtypes
    lanes = (
        _of(ORDINARY, first, samples) if ORDINARY not in left_out else iter(()),
        _in_turn([
            _varied(entry, first, samples, left_out),
            _of(CONJUGATE, _COMPLEX, samples) if conjugate else iter(()),
        ]),
        _in_turn([
            *((_of(ORDINARY, dtype, samples) for dtype in others) if ORDINARY not in left_out else ()),
            _of(ERROR, "", samples) if ERROR not in left_out else iter(()),
        ]),
    )  # fmt: skip
    return _in_turn(lanes)


def _varied(entry: OpInfoEntry, dtype: str, samples: Samples, left_out: Collection[str]) -> Iterator[SampleSpot]:
    """Yield each sample of a dtype in one of the variants that it can have, in turn."""
    if NON_CONTIGUOUS not in entry.tests:
        return  # Without a look at the samples, which takes as long as they take to make.
    for spot in _of(ORDINARY, dtype, samples):
        sample = samples.get(dtype, spot.number)
        fits = entry.in_place is not None and not sample.broadcasts and isinstance(sample.args[0], torch.Tensor)
        every = (NON_CONTIGUOUS, *((IN_PLACE,) if fits else ()), *((OUT,) if entry.has_out else ()))
        variants = [name for name in every if name not in left_out]
        if variants:
            yield spot._replace(variant=variants[spot.number % len(variants)])


def _of(variant: str, dtype: str, samples: Samples) -> Iterator[SampleSpot]:
    index = 0
    while samples.has(dtype, index):
        yield SampleSpot(variant, dtype, index)
        index += 1


def _in_turn(lanes: Iterable[Iterator[SampleSpot]]) -> Iterator[SampleSpot]:
    """Yield one item of each lane in turn, as long as there are any."""
    for row in zip_longest(*lanes):
        yield from (spot for spot in row if spot is not None)


def ordered(dtypes: Sequence[str], wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the dtypes of an entry in order of importance: as they are wanted, else float32 first."""
    if wanted:
        return tuple(dtype for dtype in wanted if dtype in dtypes)
    return tuple(sorted(dtypes, key=lambda dtype: (dtype != _FIRST, _ORDER.index(dtype) if dtype in _ORDER else 99)))


_ORDER: Final = ("float32", "int64", "float64", "bfloat16", "bool", "complex64", "float16", "int32", "uint8")
