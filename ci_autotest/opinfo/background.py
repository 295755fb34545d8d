"""What the database knows about a case beside its sample; it is asked only if the case fails.

The NumPy function of an entry is a third opinion on the reference. What PyTorch's own tests expect to fail on a device
is shown as known, and so is what the configuration's ``op_overrides`` expect. A test that PyTorch skips may be slow or
random there, so a skip excuses nothing: the finding has a note of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from ci_autotest.backends.nest import leaves, tensors_in
from ci_autotest.opinfo.database import listed
from ci_autotest.opinfo.names import ERROR, GRADIENT, INDUCTOR, PyTorchTest
from ci_autotest.values.tolerance import tolerance_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.config import OpOverride
    from ci_autotest.kinds import Candidate
    from ci_autotest.opinfo.database import OpInfoEntry, OpInfoSample
    from ci_autotest.opinfo.schedule import SampleSpot
    from ci_autotest.values.verdict import Verdict

#: Kinds of differences that a failure of PyTorch's tests can be.
_KINDS: Final = frozenset({"value", "gradient", "dtype", "error"})
#: PyTorch's test that holds a device against the CPU: what its lists say of the CPU itself is about nothing that runs.
_OF_ACCELERATORS: Final = "test_compare_cpu"


def is_about(row: OpOverride, own: PyTorchTest, dtype: str) -> bool:
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
            is_here = row.device_type in {None, device_type} and is_about(row, own, self.spot.dtype)
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
