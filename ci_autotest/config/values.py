"""The configuration as frozen values, and the candidates that need no configuration.

The sections ``Attributes`` become the descriptions in ``autotest.schema.json`` and in the documentation.
"""

from __future__ import annotations

import difflib
import math
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec

from ci_autotest.doc_links import Page, more
from ci_autotest.errors import ConfigError
from ci_autotest.program.targets import DISPATCHER, OVERLOADS, is_own
from ci_autotest.values.kernel_scope import KernelScope, Layout, RunMode
from ci_autotest.values.result import REFERENCE_CANDIDATE, FailOn
from ci_autotest.values.tolerance import Metric, Scale, Strictness

if TYPE_CHECKING:
    from collections.abc import Iterable

BackendName: TypeAlias = Literal[
    "torch", "torch.compile", "fx", "onnxruntime", "export", "substitute", "module", "dtensor", "ddp", "fsdp"
]
Device: TypeAlias = Literal["cpu", "cuda", "auto"]
Compat: TypeAlias = Literal["oneflow"]
FILE_NAME: Final = "autotest.yml"


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every part of the file."""


class Reference(Section, frozen=True, kw_only=True):
    """The side that is believed.

    Attributes:
        backend: Framework of the reference. Only ``torch`` is supported.
        device: Device of the reference: ``cpu``, ``cuda``, or ``auto`` for the device of the candidates, which kernels
            that only take CUDA tensors need.
    """

    backend: Literal["torch"] = "torch"
    device: Device = "cpu"


class Candidate(Section, frozen=True, kw_only=True):
    """A side that is tested.

    Attributes:
        name: Unique short name of letters, digits, ``.``, ``_``, ``+`` and ``-``, at most 64 characters. Reports and
            ``--candidate`` use it.
        backend: How the candidate runs a program: ``torch`` (eager PyTorch on another device), ``torch.compile``,
            ``fx`` (a graph pass), ``onnxruntime`` (exported by torch), ``export`` (your exporter or runtime),
            ``substitute`` (your functions replace operators), ``module`` (another framework with torch's names),
            ``dtensor`` (a group of ranks, over which every tensor is distributed), or ``ddp`` and ``fsdp`` (a group of
            ranks that share the batch of a module).
        device: Device of the candidate: ``cpu``, ``cuda``, ``auto`` (a GPU if there is one), or the name of a device
            that ``module`` registers with torch, for example ``npu``. Ranks on ``cuda`` have a GPU each.
        options: Keyword arguments of ``torch.compile`` (``backend``, ``mode``, ``dynamic``, ``fullgraph``,
            ``options``), or of ``torch.onnx.export`` for backend ``onnxruntime`` (``dynamo``, ``opset_version``).
        replace: For backend ``substitute``: the dotted path of your function for each operator, for example
            ``torch.nn.functional.softmax: mykernels.softmax``. It takes and returns torch tensors like the operator.
            The operator may be one of your own, ``refs.swiglu`` or ``torch.ops.mylib.swiglu``, and a class of modules
            may be replaced by another.
        state: For classes of modules in ``replace``: the dotted path of a function that takes the replacement's module
            and the reference's ``state_dict``, and copies the state. Without it, the state is copied by name.
        load: Libraries that register operators with torch, ``build/libmylib.so``, relative to the configuration's
            folder.
        import: Modules that register operators or that a saved program may name operators of, ``mypackage.ops``.
        transform: For backend ``fx``: the dotted path of the pass that takes and returns the graph of a program. It
            gets a list of example inputs too if it has a second argument without a default.
        compile: For backend ``export``: the dotted path of a function that takes a ``torch.export.ExportedProgram`` and
            returns a callable, which takes the body's tensors and returns its results.
        takes: For backend ``export``: what that function takes. ``module`` stands for an ``nn.Module`` and a tuple of
            its inputs.
        dynamic: For backend ``export``: whether bodies are exported for all sizes, so that one callable is used for
            cases of several sizes.
        delegated: For backends ``torch.compile`` and ``export``: the dotted path of a function that takes what was made
            of a graph, and returns the names of the operators that run there, or their number. Without it, ci-autotest
            watches which operators PyTorch runs in their place.
        module: For backend ``module``: the framework's module, for example ``oneflow``. For other backends: the module
            that registers ``device`` with torch when it is imported, for example ``torch_npu``.
        python: For backend ``module``: the interpreter in which the framework is installed, as a path relative to the
            configuration's folder or a name on PATH. Empty for the interpreter of ci-autotest.
        mode: For backend ``module``: ``eager`` runs a test's body step by step, ``graph`` as one graph of the
            framework.
        mapping: For backend ``module``: rows of the framework's operator table, by operator, that replace those that
            ship with ci-autotest.
        shapes: Number of sets of sizes and choices that the cases of a test share, each time with new data, for
            frameworks that compile for every shape. 0 gives each case its own set. Null means 3 for JAX, and 0
            otherwise.
        required: Whether the run ends with exit status 4 if the candidate is not available. Otherwise it is skipped,
            and the report says why.
        isolated: For backend ``substitute``: whether the functions of ``replace`` run in a process that holds neither
            the reference's values nor the comparison.
        speed: Whether aligned bodies are also timed at larger sizes, against the reference (a graph pass against the
            graph before it). Only for candidates that run in the worker's own process.
        env: For backends ``module`` and ``substitute``: environment variables of the process in which the candidate
            runs; the candidate then has a process of its own.
        inference: For backend ``torch.compile``: whether the body is compiled and run within
            ``torch.inference_mode()``, as a model in use is; only values are compared.
        forward_only: Whether the candidate has no backward pass, so that bodies run within ``torch.no_grad()`` and only
            values are compared. For backend ``substitute``: whether the functions of ``replace`` have none, or the
            operators of ``replace`` whose functions have none. They get tensors without a graph, and of a case that
            calls one only values are compared.
        dtypes: Dtypes that the candidate takes, for example ``float16``. A case's dtypes are those of its
            floating-point and complex tensors, results included, or of all its tensors if it has none of these. For
            backend ``substitute``, each call of a function of ``replace`` is asked instead. Empty for all dtypes.
        profiles: Profiles that the candidate takes, for example ``ordinary``. Empty for all profiles.
        layouts: Layouts of the tensors that the candidate takes, asked of all tensors that a case's calls get, or of
            each call of a function of ``replace``; ``contiguous`` is the only one. Empty for all layouts.
        devices: For backend ``substitute``: kinds of devices whose tensors the functions of ``replace`` take, for
            example ``cuda``. Empty for all devices.
        writes: For backend ``substitute``: parameters of the operators that the functions of ``replace`` write to by
            design, for example ``input`` of a loss that leaves its gradient there. What such an input then holds is not
            compared, and a result may share its memory; everything else is compared.
        guard: For backend ``substitute``: whether the inputs of one case in eight, and what the functions of
            ``replace`` allocate, lie between guard bands, so that reads and writes out of bounds show. Null for yes.
        opcheck: For backend ``substitute``: whether ``torch.library.opcheck`` checks the functions of ``replace`` that
            are operators of a library, in three cases of each test. Null for yes.
        ranks: For backends ``dtensor``, ``ddp`` and ``fsdp``: number of ranks, at most 16. Null for the product of
            ``mesh``. For backend ``module`` with module ``oneflow``: number of processes on which its tensors are
            global, 2 to 16.
        mesh: For backend ``dtensor``: sizes of the mesh of ranks, one or two, for example ``[2, 2]``. Empty to draw one
            with ``ranks`` ranks for each case.
        placements: For backend ``dtensor``: how every input lies on the ranks, ``Shard(0)``, ``Replicate`` or
            ``Partial`` for each dimension of ``mesh``. Empty to draw it for each input.
        processes: For backend ``dtensor``: whether each rank is a process of its own; they communicate by gloo, on GPUs
            by nccl. If not, all ranks are simulated in one process.
        wrap: For backends ``ddp`` and ``fsdp``: your function that takes a module and the number of ranks, and returns
            the wrapped module, as ``module:function``. Empty for ``DistributedDataParallel(module)`` or
            ``fully_shard(module)``.
    """

    name: str
    backend: BackendName
    device: str = "cpu"
    options: dict[str, Any] = {}
    replace: dict[str, str] = {}
    state: dict[str, str] = {}
    load: tuple[str, ...] = ()
    imports: tuple[str, ...] = msgspec.field(name="import", default=())
    transform: str = ""
    compile: str = ""
    takes: Literal["program", "module"] = "program"
    dynamic: bool = False
    delegated: str = ""
    module: str = ""
    python: str = ""
    mode: Literal["eager", "graph"] = "eager"
    mapping: dict[str, dict[str, Any]] = {}
    shapes: int | None = None
    required: bool = False
    isolated: bool = False
    speed: bool = False
    env: dict[str, str] = {}
    inference: bool = False
    forward_only: bool | tuple[str, ...] = False
    dtypes: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    layouts: tuple[Layout, ...] = ()
    devices: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    guard: bool | None = None
    opcheck: bool | None = None
    ranks: int | None = None
    mesh: tuple[int, ...] = ()
    placements: tuple[str, ...] = ()
    processes: bool = False
    wrap: str = ""

    @property
    def is_isolated(self) -> bool:
        """Whether the user's functions run in a host."""
        return self.backend == "substitute" and (self.isolated or bool(self.env))

    @property
    def has_rank_processes(self) -> bool:
        """Whether it is a group of ranks that are processes with PyTorch."""
        return self.processes or self.backend in {"ddp", "fsdp"}

    @property
    def rank_count(self) -> int:
        """Number of its ranks; 1 if it is no group."""
        return self.ranks or math.prod(self.mesh)

    @property
    def stays_on_cpu(self) -> bool:
        """Whether it is a group of ranks that are on the CPU: simulated ones, and those of another framework."""
        return (self.backend == "dtensor" and not self.processes) or (
            self.backend == "module" and self.ranks is not None
        )

    @property
    def has_guard(self) -> bool:
        """Whether cases in which code outside of torch runs are guarded."""
        return self.backend == "substitute" and self.guard is not False

    @property
    def checks_operators(self) -> bool:
        """Whether operators of libraries that answer calls are checked."""
        return self.backend == "substitute" and self.opcheck is not False

    @property
    def run_mode(self) -> RunMode:
        """How bodies run: with gradients, or without; functions of ``replace`` have their own scope."""
        if self.inference:
            return "inference"
        return "forward_only" if self.forward_only is True and not self.replace else "training"

    @property
    def scope(self) -> KernelScope:
        """What the user's functions take."""
        every = tuple(self.replace) if self.forward_only else ()
        forward_only = self.forward_only if isinstance(self.forward_only, tuple) else every
        return KernelScope(forward_only, self.dtypes, self.profiles, self.layouts, self.devices, self.writes)


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
    op_overrides: dict[str, tuple[OpOverride, ...]] = {}
    test_exclusions: dict[str, tuple[str, ...] | Literal["*"]] = {}


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
    candidates: tuple[Candidate, ...] = ()
    tolerances: tuple[ToleranceRule, ...] = ()
    known: tuple[Known, ...] = ()
    fail_on: FailOn = "misaligned"
    slower_factor: float = 1.1
    output: str = "autotest-report"
    compat: Compat | None = None
    opinfo: OpInfo = OpInfo()


#: Backends that compile or export a body, and call what was made of it for later cases, too.
COMPILERS: Final = frozenset({"torch.compile", "export", "onnxruntime"})
#: Arguments of ``torch.compile`` (PyTorch 2.13) that `options:` may hold.
COMPILE_OPTIONS: Final = frozenset({"backend", "mode", "dynamic", "fullgraph", "options"})
#: Arguments of ``torch.onnx.export`` (PyTorch 2.13) that `options:` may hold; ``dynamo`` chooses between its exporters.
EXPORT_OPTIONS: Final = frozenset({"dynamo", "opset_version"})
#: Modules that have a graph mode.
GRAPHS: Final = ("oneflow", "paddle")
#: Default of ``shapes`` for modules that compile for every shape.
SHAPES: Final[dict[str, int]] = {"jax": 3}
#: Devices that need no module.
DEVICES: Final = get_args(Device)
#: Root seeds are below this.
SEEDS: Final = 1 << 63
#: Upper limits of cases per test and of workers.
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


def of_reference(device: str = "cpu") -> Candidate:
    """Return PyTorch as a candidate, which is held against what tests expect."""
    return Candidate(name=REFERENCE_CANDIDATE, backend="torch", device=device)


def named_by(candidates: Iterable[Candidate], paths: Iterable[str] = ()) -> frozenset[str]:
    """Return what programs may name: user functions and modules of which candidates consist, and what paths test."""
    names = (
        name
        for each in candidates
        for name in (
            *each.replace.values(),
            *filter(is_own, each.replace),
            *each.imports,
            *each.load,
            *each.state.values(),
            each.transform,
            each.compile,
            each.delegated,
            each.wrap.replace(":", "."),
            each.module,
        )
    )
    overloads = [DISPATCHER[:-1]] if any(path.startswith(OVERLOADS) for path in paths) else []
    return frozenset(filter(None, (*names, *overloads)))


def shapes_of(candidates: Iterable[Candidate]) -> int:
    """Return how many sets of sizes and choices the cases of a test share; 0 if each case has its own."""
    # All candidates run the same cases, so the lowest number holds for all. Candidates that are not available count
    # too, because what is drawn must not depend on the machine.
    asked = [
        candidate.shapes if candidate.shapes is not None else SHAPES.get(candidate.module, 0)
        for candidate in candidates
    ]
    return min((number for number in asked if number), default=0)
