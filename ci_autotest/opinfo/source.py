"""The source ``builtin:opinfo``: the tests of the database, and the body of each."""

from __future__ import annotations

import unittest
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.opinfo.database import Entry, entries
from ci_autotest.opinfo.families import OPINFO
from ci_autotest.opinfo.sample_call import record_sample
from ci_autotest.opinfo.schedule import Samples, Spot, ordered, spots
from ci_autotest.opinfo.variants import ORDINARY
from ci_autotest.record.context import CURRENT
from ci_autotest.record.declaration import Declaration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

#: Entries whose samples are kept.
_KEPT: Final = 4


class Listed(NamedTuple):
    """A test of the source: its id, the file name of its family, its name there, and its number of cases."""

    id: str
    file: str
    name: str
    cases: int


class Opinfo:
    """The tests of the operator database.

    Args:
        seed: Root seed of the run.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._bodies: OrderedDict[str, EntryBody] = OrderedDict()

    def tests(self, file: str, wanted: Collection[str], at_most: int | None) -> list[Listed]:
        """Return the tests of the source or of one of its families.

        Args:
            file: ``builtin:opinfo``, or with ``/`` and a family.
            wanted: Names of the tests whose cases are counted; empty for all of them.
            at_most: Number up to which the cases of a test are counted; ``None`` for all of them.
        """
        family = file.removeprefix(OPINFO).removeprefix("/")
        return [
            Listed(
                f"{OPINFO}::{entry.name}", f"{OPINFO}/{entry.family}", entry.name,
                self._body(entry).count(at_most) if not wanted or is_wanted(entry.name, wanted) else 0,
            )
            for entry in entries().values()
            if family in {"", entry.family} and self._body(entry).dtypes
        ]  # fmt: skip

    def find(self, name: str) -> tuple[Declaration, EntryBody]:
        """Return the declaration and the body of a test.

        Raises:
            LookupError: The installed PyTorch's database has no such entry.
        """
        entry = entries().get(name)
        if entry is None:
            message = f"{OPINFO} has no test {name!r}."
            raise LookupError(message)
        body = self._body(entry)
        return Declaration(body, profiles=()), body

    def _body(self, entry: Entry) -> EntryBody:
        found = self._bodies.get(entry.name)
        if found is None:
            found = self._bodies[entry.name] = EntryBody(entry, self._seed)
            if len(self._bodies) > _KEPT:
                self._bodies.popitem(last=False)
        return found


def is_wanted(name: str, wanted: Collection[str]) -> bool:
    """Whether a test is one of those named; a name without its variant in brackets means all variants."""
    return any(name == one or name.startswith(f"{one}[") for one in wanted)


class EntryBody:
    """The body of an entry's test: it records the sample that belongs to the current case.

    Args:
        entry: The entry.
        seed: Root seed of the run.
    """

    def __init__(self, entry: Entry, seed: int) -> None:
        self._entry = entry
        self.dtypes = ordered(entry.dtypes())
        self._samples = Samples(entry, f"{OPINFO}::{entry.name}", seed)
        self._rest: Iterator[Spot] | None = None
        self._spots: list[Spot] = []

    def count(self, at_most: int | None) -> int:
        """Return the number of cases, up to ``at_most``."""
        self._reach(at_most)
        return len(self._spots) if at_most is None else min(at_most, len(self._spots))

    def _reach(self, count: int | None) -> None:
        if self._rest is None:
            self._rest = spots(self._entry, self._samples, self.dtypes) if self.dtypes else iter(())
        self._spots += islice(self._rest, None if count is None else max(0, count - len(self._spots)))

    def __call__(self) -> Any:
        """Record the sample of the current case; a variant that the reference refuses becomes an ordinary call."""
        recorder = CURRENT.get()
        assert recorder is not None  # noqa: S101 - bodies run only while a case is recorded
        _, case, attempt = recorder.drawer.streams.current
        self._reach(case + 1)
        if case >= len(self._spots):
            message = f"there are {len(self._spots)} samples"
            raise unittest.SkipTest(message)
        spot = self._spots[case]
        variant = spot.variant if attempt == 0 else ORDINARY
        if attempt > (spot.variant != ORDINARY):
            message = "the reference refuses the sample"
            raise unittest.SkipTest(message)
        sample = self._samples.get(spot.dtype, spot.index)
        try:
            return record_sample(recorder, self._entry, sample, variant)
        except unittest.SkipTest:
            raise
        except Exception as error:
            if recorder.refusal is not None and recorder.refusal[1] is error:
                raise
            message = f"no program can hold {variant} sample {spot.index} of {spot.dtype or 'errors'}: {error}"
            raise unittest.SkipTest(message) from None
