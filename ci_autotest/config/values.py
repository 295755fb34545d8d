"""The configuration as frozen values: what a run is asked to do, and what candidates there are without a file."""

from __future__ import annotations

import difflib
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec

from ci_autotest.errors import ConfigError
from ci_autotest.values.tolerance import Strictness

if TYPE_CHECKING:
    from collections.abc import Iterable

BackendName: TypeAlias = Literal["torch", "torch.compile", "fx", "onnxruntime", "substitute", "module"]
Device: TypeAlias = Literal["cpu", "cuda", "auto"]
FILE_NAME: Final = "autotest.yml"


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every part of the file."""


class Reference(Section, frozen=True, kw_only=True):
    """The side believed: ``torch`` on a device; ``auto`` puts it where the candidates are."""

    backend: Literal["torch"] = "torch"
    device: Device = "cpu"


class Candidate(Section, frozen=True, kw_only=True):
    """A side tested.

    Attributes:
        name: Short name, unique: letters, digits, ``.``, ``_``, ``+`` and ``-``.
        backend: Which adapter.
        device: ``cpu``, ``cuda``, ``auto``, or the name of a device that ``module`` registers with torch.
        options: Arguments of ``torch.compile``, or of ``torch.onnx.export`` for ``onnxruntime``.
        replace: Dotted path of the replacement by operator, for ``substitute``.
        transform: Dotted path of the pass that a program's graph is put through, for ``fx``.
        module: The framework's module, for ``module``; else the module that registers ``device`` when it is imported.
        python: Interpreter that has it, for ``module``: a path, relative to the configuration's folder, or a name on
            PATH; this one where none is given.
        mode: Whether each body runs step by step, ``eager``, or as one ``graph``, for ``module``.
        mapping: Rows of the framework's table by operator, for ``module``, in place of those that ship.
        shapes: Sets of sizes and choices that the cases of a test repeat, each time with new data: for what compiles
            for every shape. 0: each case has its own. JAX has 3 unless told otherwise.
        required: Whether the run ends with exit status 4 when it is not available.
        isolated: Whether the functions of ``replace`` run in a process that holds neither the reference's values nor
            the comparison.
        env: Variables of the environment of the process that it runs in, which is one of its own; for ``module`` and
            ``substitute``.
    """

    name: str
    backend: BackendName
    device: str = "cpu"
    options: dict[str, Any] = {}
    replace: dict[str, str] = {}
    transform: str = ""
    module: str = ""
    python: str = ""
    mode: Literal["eager", "graph"] = "eager"
    mapping: dict[str, dict[str, Any]] = {}
    shapes: int | None = None
    required: bool = False
    isolated: bool = False
    env: dict[str, str] = {}

    @property
    def is_isolated(self) -> bool:
        """Whether functions of the user's run in a host."""
        return self.backend == "substitute" and (self.isolated or bool(self.env))


class ToleranceRule(Section, frozen=True, kw_only=True):
    """What is allowed for some operators; ``operator`` in any spelling, with ``*``; ``reason`` says why."""

    operator: str
    rtol: float
    atol: float
    dtype: str | None = None
    candidate: str | None = None
    reason: str


class Known(Section, frozen=True, kw_only=True):
    """A difference that is accepted: as narrow as can be, until a date."""

    operator: str
    reason: str
    candidate: str | None = None
    kind: str | None = None
    until: date | None = None


class Config(Section, frozen=True, kw_only=True):
    """What a run is asked to do.

    Attributes:
        paths: Files or folders, relative to the configuration's folder.
        cases: Cases per test, where ``@autotest`` gives no ``n``.
        budget: Of the whole run, ``90s``, ``10m``, ``1h``; ``None``: no limit.
        seed: A number, ``commit`` (from the commit's hash) or ``random``.
        strictness: How tolerances are read.
        case_timeout: Of one case on one candidate.
        workers: A number, or ``auto`` for one per core.
        memory: Resident memory that a worker may hold, ``512MiB``, ``4GiB``; ``auto`` for its share of the machine's;
            ``off`` for no limit.
        reference: The side believed.
        candidates: The sides tested.
        tolerances: First match holds.
        known: Accepted differences.
        fail_on: Which findings end the run with exit status 1.
        output: Folder of the report.
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
    candidates: tuple[Candidate, ...] = ()
    tolerances: tuple[ToleranceRule, ...] = ()
    known: tuple[Known, ...] = ()
    fail_on: Literal["misaligned", "new", "never", "flaky", "leniency"] = "misaligned"
    output: str = "autotest-report"


#: Arguments of ``torch.compile`` (PyTorch 2.13) that `options:` may hold.
COMPILE_OPTIONS: Final = frozenset({"backend", "mode", "dynamic", "fullgraph", "options"})
#: Arguments of ``torch.onnx.export`` (PyTorch 2.13) that `options:` may hold: which of its two exporters, and for what.
EXPORT_OPTIONS: Final = frozenset({"dynamo", "opset_version"})
#: Modules that have a graph mode.
GRAPHS: Final = ("oneflow", "paddle")
#: Modules that compile for every shape, and how many sets of sizes and choices a test has for them.
SHAPES: Final[dict[str, int]] = {"jax": 3}
#: Devices that torch itself knows here.
DEVICES: Final = get_args(Device)
#: Root seeds are below this.
SEEDS: Final = 1 << 63
#: Greatest numbers that a run may be asked for: of cases a test, and of workers.
AT_MOST: Final = MappingProxyType({"cases": 1_000_000_000, "workers": 10_000})
#: Candidates that need no configuration.
BUILT_IN: Final[dict[str, Candidate]] = {
    "torch": Candidate(name="torch", backend="torch"),
    "torch.compile": Candidate(name="torch.compile", backend="torch.compile"),
    "cuda": Candidate(name="cuda", backend="torch", device="cuda"),
    "onnxruntime": Candidate(name="onnxruntime", backend="onnxruntime"),
    "oneflow": Candidate(name="oneflow", backend="module", module="oneflow"),
    "paddle": Candidate(name="paddle", backend="module", module="paddle"),
    "jax": Candidate(name="jax", backend="module", module="jax"),
    "mindspore": Candidate(name="mindspore", backend="module", module="mindspore"),
}


def chosen(config: Config, names: tuple[str, ...]) -> tuple[Candidate, ...]:
    """Return the candidates of a run: those named, else all of the file's.

    Raises:
        ConfigError: A name is neither in the file nor built in, or there is no candidate at all.
    """
    known = {**BUILT_IN, **{candidate.name: candidate for candidate in config.candidates}}
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
            message = f"unknown candidate {name!r}. {hint}Known: {', '.join(sorted(known))}."
            raise ConfigError(message)
    found = tuple(known[name] for name in dict.fromkeys(names)) if names else config.candidates
    if not found:
        message = (
            f"no candidate: name one with --candidate ({', '.join(sorted(BUILT_IN))}), "
            f"or list your own under `candidates:` in {FILE_NAME}."
        )
        raise ConfigError(message)
    return found


def named_by(candidates: Iterable[Candidate]) -> frozenset[str]:
    """Return the functions and modules of the user's that candidates are made of."""
    names = (name for each in candidates for name in (*each.replace.values(), each.transform, each.module))
    return frozenset(filter(None, names))


def shapes_of(candidates: Iterable[Candidate]) -> int:
    """Return how many sets of sizes and choices a test's cases share in a run of candidates, 0: each has its own.

    All run the same cases, so the fewest that one of them asks for hold for all; of those that are not there too: what
    is drawn must not depend on the machine.
    """
    asked = [
        candidate.shapes if candidate.shapes is not None else SHAPES.get(candidate.module, 0)
        for candidate in candidates
    ]
    return min((number for number in asked if number), default=0)
