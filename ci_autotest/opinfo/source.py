"""The sources ``builtin:opinfo`` and ``builtin:modules``: the tests of a database, and the body of each.

If a case fails, the database is asked what it knows about it beside its sample. The NumPy function of an entry is a
third opinion on the reference. What PyTorch's own tests expect to fail on a device is shown as known, and so is what
the configuration's ``op_overrides`` expect. A test that PyTorch skips may be slow or random there, so a skip excuses
nothing: the finding has a note of it.
"""

from __future__ import annotations

import difflib
import unittest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from ci_autotest.backends.nest import leaves, tensors_in
from ci_autotest.config import OpInfo
from ci_autotest.errors import ConfigError
from ci_autotest.opinfo.database import OpInfoEntry, entries, listed, listed_tests
from ci_autotest.opinfo.names import (
    ERROR,
    FAMILIES,
    GRADIENT,
    INDUCTOR,
    MODULE_TESTS,
    MODULES,
    OPERATOR_TESTS,
    OPINFO,
    ORDINARY,
    PyTorchTest,
)
from ci_autotest.opinfo.overload_calls import record_overload
from ci_autotest.opinfo.overloads import OverloadEntry, overload_entries
from ci_autotest.opinfo.sample_call import record_sample
from ci_autotest.opinfo.schedule import KeptSamples, Samples, SampleSpot, ordered, spots
from ci_autotest.program.targets import OVERLOADS
from ci_autotest.record.context import CURRENT
from ci_autotest.record.declaration import Declaration
from ci_autotest.run.messages import TestInfo
from ci_autotest.values.finding import Location
from ci_autotest.values.tolerance import tolerance_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ci_autotest.config import OpOverride
    from ci_autotest.kinds import Candidate
    from ci_autotest.opinfo.database import OpInfoSample
    from ci_autotest.run.worker.tests import SourceSetting
    from ci_autotest.values.verdict import Verdict

#: Kinds of differences that a failure of PyTorch's tests can be.
_KINDS: Final = frozenset({"value", "gradient", "dtype", "error"})
#: PyTorch's test that holds a device against the CPU: what its lists say of the CPU itself is about nothing that runs.
_OF_ACCELERATORS: Final = "test_compare_cpu"


class SampleTests:
    """The tests of a database; its methods are those of ``SourceTests``."""

    def __init__(self, setting: SourceSetting) -> None:
        self._name, self._seed, self._chosen = setting.name, setting.seed, setting.opinfo or OpInfo()
        self._bodies: dict[str, EntryBody] = {}
        self._kept = KeptSamples()

    def tests(
        self, file: str, wanted: Collection[str], at_most: int | None, enter: Callable[[], None] = lambda: None
    ) -> list[TestInfo]:
        """Return the tests of the source or of one of its families."""
        family, found = file.removeprefix(self._name).removeprefix("/"), []
        for entry in self._entries():
            body = self._body(entry)
            if family not in {"", entry.family} or not body.dtypes:
                continue
            enter()
            cases = body.count(at_most) if not wanted or is_wanted(entry.name, wanted) else 0
            place = f"{self._name}/{entry.family}" if entry.family else self._name
            found.append(
                TestInfo(
                    id=f"{self._name}::{entry.name}", file=place, name=entry.name, n=None,
                    location=Location(file=place, line=1), samples=cases,
                )
            )  # fmt: skip
        return found

    def _entries(self) -> Iterator[OpInfoEntry]:
        """Yield the entries that the configuration leaves.

        Raises:
            ConfigError: It names an entry, or a test of PyTorch's, that the database has not.
        """
        _check_tests(self._chosen)
        known = {entry.full_name: entry for entry in _entries_of(self._name).values()}
        wanted = self._chosen.op_allowlist
        # The keys are about both databases, so a name must be in one of them.
        for name in (*(wanted or ()), *self._chosen.op_overrides):
            if name not in known and not any(name == one.full_name for one in _others(self._name)):
                nearest = difflib.get_close_matches(name, known, 1, 0.5)
                hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
                message = f"opinfo names {name!r}, which is no entry of PyTorch {torch.__version__}'s database.{hint}"
                raise ConfigError(message)
        for name, entry in known.items():
            if wanted is None or name in wanted:
                yield entry

    def find(self, file: str, name: str) -> tuple[Declaration, EntryBody]:  # noqa: ARG002 - of a family or of the source
        """Return the declaration and the body of a test.

        Raises:
            LookupError: The installed PyTorch's database has no such entry.
        """
        entry = _entries_of(self._name).get(name)
        if entry is None:
            message = f"{self._name} has no test {name!r}."
            raise LookupError(message)
        body = self._body(entry)
        return Declaration(body, profiles=(), auto_backward=not _is_excluded(entry.tests[GRADIENT], self._chosen)), body

    def _body(self, entry: OpInfoEntry) -> EntryBody:
        found = self._bodies.get(entry.name)
        if found is None:
            samples = Samples(entry, f"{self._name}::{entry.name}", self._seed, self._kept)
            found = self._bodies[entry.name] = EntryBody(entry, samples, self._chosen)
        return found


def _entries_of(source: str) -> dict[str, OpInfoEntry]:
    """Return the entries of a source by name."""
    return overload_entries() if source == OVERLOADS else entries(source)


def _others(name: str) -> Iterable[OpInfoEntry]:
    """Return the entries of the other databases."""
    return (entry for source in FAMILIES if source != name for entry in _entries_of(source).values())


def _check_tests(chosen: OpInfo) -> None:
    """Check the names of PyTorch's tests. Lists are copied from PyTorch's, so they may name tests that nothing here is.

    Raises:
        ConfigError: Neither a variant nor the databases have a test of that name.
    """
    rows = [(row.cls_name, row.test_name) for own in chosen.op_overrides.values() for row in own]
    for cls_name, tests in chosen.test_exclusions.items():
        rows += [(cls_name, test) for test in ((None,) if tests == "*" else tests)]
    names = [".".join(filter(None, row)) for row in rows]
    variants = {*OPERATOR_TESTS.values(), *MODULE_TESTS.values()}
    if set(names) <= {"", *_names(variants)}:
        return  # The names in the databases are not needed.
    known = {"", *_names(variants | {test for source in (OPINFO, MODULES) for test in listed_tests(source)})}
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            message = f"opinfo names {name[:160]!r}, which is no test of PyTorch {torch.__version__}'s database.{hint}"
            raise ConfigError(message)


def _names(tests: Iterable[PyTorchTest]) -> Iterator[str]:
    """Yield what a row may name: a class, a test of any class, or a test of a class."""
    for cls_name, test_name in tests:
        yield from (cls_name, test_name, f"{cls_name}.{test_name}")


def is_wanted(name: str, wanted: Collection[str]) -> bool:
    """Whether a test is one of those named; a name without its variant in brackets means all variants."""
    return any(name == one or name.startswith(f"{one}[") for one in wanted)


def _is_excluded(own: PyTorchTest, chosen: OpInfo) -> bool:
    names = chosen.test_exclusions.get(own.cls_name, ())
    return names == "*" or own.test_name in names


def _is_skipped(row: OpOverride, own: PyTorchTest, spot: SampleSpot) -> bool:
    return row.decorator == "skip" and _is_about(row, own, spot.dtype)


class EntryBody:
    """The body of an entry's test: it records the sample that belongs to the current case.

    Args:
        entry: The entry.
        samples: Its samples.
        chosen: What the configuration says of the database.
    """

    def __init__(self, entry: OpInfoEntry, samples: Samples, chosen: OpInfo) -> None:
        self._entry, self._samples = entry, samples
        self._rows = chosen.op_overrides.get(entry.full_name, ())
        self._left_out = [name for name, own in entry.tests.items() if _is_excluded(own, chosen)]
        self.dtypes = ordered(entry.dtypes(), chosen.dtypes)
        self._rest: Iterator[SampleSpot] | None = None
        self._spots: list[SampleSpot] = []

    def count(self, at_most: int | None) -> int:
        """Return the number of cases, up to ``at_most``."""
        self._reach(at_most)
        return len(self._spots) if at_most is None else min(at_most, len(self._spots))

    def _reach(self, count: int | None) -> None:
        if self._rest is None:
            every = spots(self._entry, self._samples, self.dtypes, self._left_out) if self.dtypes else iter(())
            self._rest = (
                spot
                for spot in every
                if not any(_is_skipped(row, self._entry.tests[spot.variant], spot) for row in self._rows)
            )
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
        sample = self._samples.get(spot.dtype, spot.number)
        recorder.notes.background = SampleBackground(self._entry, sample, spot._replace(variant=variant), self._rows)
        try:
            if isinstance(self._entry, OverloadEntry):
                return record_overload(recorder, self._entry.call, sample)
            return record_sample(recorder, self._entry, sample, variant)
        except unittest.SkipTest:
            raise
        except Exception as error:
            if recorder.refusal is not None and recorder.refusal[1] is error:
                raise
            message = f"no program can hold {variant} sample {spot.number} of {spot.dtype or 'errors'}: {error}"
            raise unittest.SkipTest(message) from None


def _is_about(row: OpOverride, own: PyTorchTest, dtype: str) -> bool:
    """Whether a row concerns one of PyTorch's tests and a dtype."""
    return (
        row.cls_name in {None, own.cls_name}
        and row.test_name in {None, own.test_name}
        and (row.dtypes is None or dtype in row.dtypes)
    )


class SampleBackground(NamedTuple):
    """What is known about the case of a sample.

    Args:
        entry: The entry.
        sample: The sample.
        spot: Its dtype and variant.
        rows: The configuration's rows for the entry.
    """

    entry: OpInfoEntry
    sample: OpInfoSample
    spot: SampleSpot
    rows: Sequence[OpOverride]

    def notes(self, candidate: Candidate, verdict: Verdict) -> tuple[str, ...]:
        """Return what NumPy says about the reference, and which of PyTorch's tests is skipped on a device."""
        device_type = candidate.device.partition(":")[0]
        skipped = (
            f"PyTorch skips its own {test.cls_name}.{test.test_name} of it on {device_type}"
            for test in self._listed(candidate, device_type, verdict, "skip")
        )
        return (*self._opinion(), *skipped)

    def _opinion(self) -> tuple[str, ...]:
        if self.spot.variant == ERROR or not self.entry.has_reference:
            return ()
        try:
            with torch.no_grad():
                expected = self.entry.reference(self.sample)
                found = self.entry.call(*self.sample.args, **self.sample.kwargs)
        except Exception:  # noqa: BLE001 - the functions take fewer dtypes and arguments than the operators
            return ()
        worst = _greatest_difference(found, expected, self.spot.dtype)
        if worst is None:
            return ()
        if worst == 0.0:
            return ("NumPy agrees with the reference",)
        return (f"NumPy's function for it differs from the reference too, by up to {worst:.2e}",)

    def known(self, candidate: Candidate, verdict: Verdict) -> str:
        """Return why a difference is expected on a device; empty if it is not."""
        own = self._own(verdict)
        device_type = candidate.device.partition(":")[0]
        for row in self.rows:
            is_here = row.device_type in {None, device_type} and _is_about(row, own, self.spot.dtype)
            if row.decorator == "expectedFailure" and is_here:
                return row.reason or f"op_overrides expects {own.cls_name}.{own.test_name} to fail"
        for test in self._listed(candidate, device_type, verdict, "expectedFailure") if verdict.kind in _KINDS else ():
            return f"known by PyTorch: its database lists {test.cls_name}.{test.test_name} as an expected failure"
        return ""

    def _listed(self, candidate: Candidate, device_type: str, verdict: Verdict, how: str) -> Iterator[PyTorchTest]:
        """Yield PyTorch's tests of the case that the database lists in one way."""
        if not candidate.is_pytorch:
            return
        for test in (self._own(verdict), *([self.entry.tests[INDUCTOR]] if candidate.is_compiler else [])):
            is_about_it = test.test_name != _OF_ACCELERATORS or device_type != "cpu"
            if is_about_it and how in listed(self.entry, test, device_type, self.spot.dtype):
                yield test

    def _own(self, verdict: Verdict) -> PyTorchTest:
        return self.entry.tests[GRADIENT if verdict.kind == "gradient" else self.spot.variant]


def _greatest_difference(found: Any, expected: Any, dtype: str) -> float | None:
    """Return the greatest difference beyond the tolerance, 0 if there is none; ``None`` if they cannot be compared."""
    ours, theirs = tensors_in(found), list(map(np.asarray, leaves(expected)))
    if not ours or len(ours) != len(theirs):
        return None
    allowed, worst = tolerance_for(dtype), 0.0
    for one, other in zip(ours, theirs, strict=True):
        left = one.detach().resolve_conj().resolve_neg()
        wide = left.to(torch.complex128 if left.is_complex() else torch.float64).numpy()
        if wide.shape != other.shape or other.dtype.kind not in "biufc":
            return None
        exact = other.astype(wide.dtype)
        if not np.allclose(wide, exact, allowed.rtol, allowed.atol, equal_nan=True):
            worst = max(worst, float(np.nanmax(np.abs(wide - exact), initial=0.0)) or np.inf)
    return worst
