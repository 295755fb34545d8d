"""The configuration as frozen values, and the candidates that need no configuration.

The sections ``Attributes`` become the descriptions in ``autotest.schema.json`` and in the documentation.
"""

from __future__ import annotations

import difflib
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from ci_autotest.doc_links import Page, more
from ci_autotest.errors import ConfigError
from ci_autotest.kinds import (
    AnyCandidate,
    Candidate,
    CompileCandidate,
    Device,
    ModuleCandidate,
    OnnxRuntimeCandidate,
    TorchCandidate,
)
from ci_autotest.program.targets import DISPATCHER, OVERLOADS
from ci_autotest.values.result import REFERENCE_CANDIDATE, FailOn
from ci_autotest.values.schema import Section
from ci_autotest.values.tolerance import Metric, Scale, Strictness

if TYPE_CHECKING:
    from collections.abc import Iterable

Compat: TypeAlias = Literal["oneflow"]
FILE_NAME: Final = "autotest.yml"


class Reference(Section, frozen=True, kw_only=True):
    """The side that is believed.

    Attributes:
        backend: Framework of the reference. Only ``torch`` is supported.
        device: Device of the reference: ``cpu``, ``cuda``, or ``auto`` for the device of the candidates, which kernels
            that only take CUDA tensors need.
    """

    backend: Literal["torch"] = "torch"
    device: Device = "cpu"


class ToleranceRule(Section, frozen=True, kw_only=True):
    """The tolerance of some operators, in place of the default for the dtype.

    Attributes:
        operator: Operator in any of torch's spellings; ``*`` stands for any text, for example
            ``torch.nn.functional.conv*``.
        rtol: Allowed difference relative to the reference: ``|candidate - reference| <= atol + rtol * |reference|``.
        atol: Allowed absolute difference, in the unit of the elements.
        metric: What is compared: ``elements`` (each with ``rtol`` and ``atol``), or the whole tensor with ``limit``:
            ``relative_norm`` (of the difference, at most), ``cosine`` (at least), ``snr_db`` (signal to noise in
            decibels, at least). ``ulp`` allows ``limit`` units in the last place per element.
        limit: Limit of a metric other than ``elements``.
        share: Part of the elements that may be off by more, for the metrics ``elements`` and ``ulp``: 0.001 for one in
            a thousand. Elements that are not finite are never among them.
        factor: With ``strictness: measured``, how many times the reference's own error is allowed. Null for 2.
        scale: What ``rtol`` and ``atol`` are multiplied by: ``sqrt(K)``, ``K`` or ``log2(K)``, where K is the number of
            elements that the operator sums for one element of its result, for example the inner dimension of a product.
            Null for 1.
        dtype: Dtype that the row is for, for example ``float16``. Null for all dtypes.
        candidate: Candidate that the row is for. Null for all candidates.
        reason: Why this tolerance is right. Required, because a loose tolerance hides faults.
    """

    operator: str
    rtol: float | None = None
    atol: float | None = None
    metric: Metric = "elements"
    limit: float | None = None
    share: float = 0.0
    factor: float | None = None
    scale: Scale | None = None
    dtype: str | None = None
    candidate: str | None = None
    reason: str


class Known(Section, frozen=True, kw_only=True):
    """A difference that is accepted and does not fail the run. A row that matches no finding is reported.

    Attributes:
        operator: Operator in any of torch's spellings; ``*`` stands for any text.
        reason: Why the difference is acceptable; reports show it.
        candidate: Candidate that the row is for. Null for all candidates.
        kind: Kind of difference, for example ``value``, ``gradient`` or ``dtype``. Null for all kinds.
        until: Last day on which the row accepts anything, as ``2027-06-01``. Null for no end.
    """

    operator: str
    reason: str
    candidate: str | None = None
    kind: str | None = None
    until: date | None = None


class OpOverride(Section, frozen=True, kw_only=True):
    """What PyTorch's own tests expect of an entry, as in ``DecorateInfo``.

    Attributes:
        decorator: ``expectedFailure``: what fails is reported as known. ``skip``: these cases are left out.
        cls_name: Class of PyTorch's tests, for example ``TestCommon``. Null for all classes.
        test_name: Name of PyTorch's test, for example ``test_out``. Null for all tests.
        device_type: Device of the candidates that an ``expectedFailure`` is for. Null for all devices.
        dtypes: Dtypes that the row is for. Null for all dtypes.
        reason: Why; reports show it.
    """

    decorator: Literal["expectedFailure", "skip"]
    cls_name: str | None = None
    test_name: str | None = None
    device_type: str | None = None
    dtypes: tuple[str, ...] | None = None
    reason: str = ""


class OpInfo(Section, frozen=True, kw_only=True):
    """What of PyTorch's databases is tested, for the sources ``builtin:opinfo`` and ``builtin:modules``.

    The keys ``op_allowlist``, ``op_overrides`` and ``test_exclusions`` are those by which a device backend reuses
    PyTorch's own tests; their names of entries are PyTorch's, ``linalg.norm`` or ``div.floor_rounding``.

    Attributes:
        dtypes: Dtypes to test, in order of importance. Empty for all that the database lists, ``float32`` first.
        op_allowlist: Entries to test. Null for all entries.
        op_overrides: Rows for an entry, in addition to those of the database.
        test_exclusions: Tests to leave out, by class of PyTorch's tests: a list of names, or ``*`` for all of them.
    """

    dtypes: tuple[str, ...] = ()
    op_allowlist: tuple[str, ...] | None = None
    op_overrides: dict[str, tuple[OpOverride, ...]] = msgspec.field(default_factory=dict)
    test_exclusions: dict[str, tuple[str, ...] | Literal["*"]] = msgspec.field(default_factory=dict)


class Config(Section, frozen=True, kw_only=True):
    """The configuration of a run, ``autotest.yml``. The command line takes precedence over the file.

    Attributes:
        paths: Files and folders with tests, relative to the configuration's folder. Empty for ``autotests/``, or for
            files named ``autotest_*.py`` or ``test_*.py`` that use ``@autotest`` if there is no such folder.
        cases: Number of cases per test, from 1, unless ``@autotest`` gives ``n``.
        budget: Time limit of the whole run, with a unit: ``90s``, ``10m`` or ``1h``. Cases that do not fit are reported
            as not run. Null for no limit.
        seed: Root seed of all inputs: a number, ``commit`` (made from the commit's hash) or ``random`` (drawn and
            printed, for nightly runs).
        strictness: How numbers are compared: ``tolerance`` allows the tolerance of the dtype, ``measured`` twice the
            reference's own error in float64 and one rounding, ``ulp`` 4 units in the last place, ``bitwise`` no
            difference. The last two also tell -0.0 from 0.0.
        case_timeout: Time limit of one case on one candidate, with a unit: ``ms``, ``s``, ``m`` or ``h``.
        workers: Number of worker processes, or ``auto`` for one per core.
        memory: Resident memory that a worker may hold: a size such as ``512MiB`` or ``4GiB``, ``auto`` for its share of
            the machine's memory, or ``off`` for no limit. A worker that exceeds it is ended.
        reference: The side that is believed: PyTorch on a device.
        candidates: The sides that are tested. ``--candidate`` selects some of them by name.
        tolerances: Tolerances of some operators, in place of the defaults per dtype. If a value follows from several
            operators, the loosest matching tolerance applies.
        known: Accepted differences, which do not fail the run.
        fail_on: Findings that end the run with exit status 1: ``misaligned`` (all that count against a candidate),
            ``flaky`` and ``leniency`` (those too), ``slower`` (also what is slower by ``slower_factor``), ``new`` (only
            those that the baseline lacks) or ``never``.
        slower_factor: With ``fail_on: slower``: from which ratio of the candidate's time to the reference's a timed
            call counts; 1 or more. If the baseline has timed the same call, the ratio to its ratio counts instead.
        output: Folder of the report, relative to the current folder.
        compat: The harness for which the test files were written: ``oneflow`` runs files of OneFlow's AutoTest
            unmodified. Null for ci-autotest's own.
        opinfo: What of PyTorch's databases is tested, for ``builtin:opinfo`` and ``builtin:modules``.
    """

    paths: tuple[str, ...] = ()
    cases: int = 20
    budget: str | None = None
    seed: int | Literal["commit", "random"] = 0
    strictness: Strictness = "tolerance"
    case_timeout: str = "60s"
    workers: int | Literal["auto"] = "auto"
    memory: str = "auto"
    reference: Reference = Reference()
    candidates: tuple[AnyCandidate, ...] = ()
    tolerances: tuple[ToleranceRule, ...] = ()
    known: tuple[Known, ...] = ()
    fail_on: FailOn = "misaligned"
    slower_factor: float = 1.1
    output: str = "autotest-report"
    compat: Compat | None = None
    opinfo: OpInfo = OpInfo()


#: Root seeds are below this.
SEEDS: Final = 1 << 63
#: Upper limits of cases per test and of workers.
AT_MOST: Final = MappingProxyType({"cases": 1_000_000_000, "workers": 10_000})
#: Candidates that need no configuration.
BUILT_IN: Final[dict[str, AnyCandidate]] = {
    "torch": TorchCandidate(name="torch"),
    "torch.compile": CompileCandidate(name="torch.compile"),
    "cuda": TorchCandidate(name="cuda", device="cuda"),
    "onnxruntime": OnnxRuntimeCandidate(name="onnxruntime"),
    **{name: ModuleCandidate(name=name, module=name) for name in ("oneflow", "paddle", "jax", "mindspore")},
}


def chosen(config: Config, names: tuple[str, ...]) -> tuple[AnyCandidate, ...]:
    """Return the candidates of a run: those named, else all of the file's.

    Raises:
        ConfigError: A name is neither in the file nor built in, or there is no candidate at all.
    """
    # The file's candidates come last, because one of them may have the name of a built-in one.
    known = {**BUILT_IN, **{candidate.name: candidate for candidate in config.candidates}}
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
            message = f"unknown candidate {name!r}. {hint}Known: {', '.join(sorted(known))}."
            raise ConfigError(message)
    # A candidate that is named twice runs once.
    found = tuple(known[name] for name in dict.fromkeys(names)) if names else config.candidates
    if not found:
        message = (
            f"no candidate: name one with --candidate ({', '.join(sorted(BUILT_IN))}), "
            f"or list your own under `candidates:` in {FILE_NAME}.{more(Page.NO_CANDIDATE)}"
        )
        raise ConfigError(message)
    return found


def of_reference(device: str = "cpu") -> TorchCandidate:
    """Return PyTorch as a candidate, which is held against what tests expect."""
    return TorchCandidate(name=REFERENCE_CANDIDATE, device=device)


def named_by(candidates: Iterable[Candidate], paths: Iterable[str] = ()) -> frozenset[str]:
    """Return what programs may name: user functions and modules of which candidates consist, and what paths test."""
    names = (name for each in candidates for name in each.named)
    overloads = [DISPATCHER[:-1]] if any(path.startswith(OVERLOADS) for path in paths) else []
    return frozenset(filter(None, (*names, *overloads)))


def shapes_of(candidates: Iterable[Candidate]) -> int:
    """Return how many sets of sizes and choices the cases of a test share; 0 if each case has its own."""
    # All candidates run the same cases, so the lowest number holds for all. Candidates that are not available count
    # too, because what is drawn must not depend on the machine.
    asked = [candidate.shapes if candidate.shapes is not None else candidate.default_shapes for candidate in candidates]
    return min((number for number in asked if number), default=0)
