"""The configuration: ``autotest.yml`` as a frozen value, strictly read.

Precedence, decided in ``session/asking``: command line over file over defaults. An unknown key is an error
that names the nearest.
"""

from __future__ import annotations

import difflib
import re
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec
import yaml

from ci_autotest.errors import ConfigError, ToleranceError
from ci_autotest.tolerance import Strictness, Tolerance

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
        name: Short name, unique.
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
    fail_on: Literal["misaligned", "new", "never", "flaky"] = "misaligned"
    output: str = "autotest-report"


#: Arguments of ``torch.compile`` (PyTorch 2.13) that `options:` may hold.
COMPILE_OPTIONS: Final = frozenset({"backend", "mode", "dynamic", "fullgraph", "options"})
#: Arguments of ``torch.onnx.export`` (PyTorch 2.13) that `options:` may hold: which of its two exporters, and for what.
EXPORT_OPTIONS: Final = frozenset({"dynamo", "opset_version"})
_OPTIONS: Final = MappingProxyType({"torch.compile": COMPILE_OPTIONS, "onnxruntime": EXPORT_OPTIONS})
#: Modules that have a graph mode.
GRAPHS: Final = ("oneflow", "paddle")
#: Modules that compile for every shape, and how many sets of sizes and choices a test has for them.
SHAPES: Final[dict[str, int]] = {"jax": 3}
#: Devices that torch itself knows here.
DEVICES: Final = get_args(Device)
#: Root seeds are below this.
SEEDS: Final = 1 << 63
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
_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_OWN_DEVICES: Final = ", ".join(DEVICES)
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)(MiB|GiB)")
_UNIT_BYTES: Final = {"MiB": 1 << 20, "GiB": 1 << 30}


def duration_s(text: str, name: str) -> float:
    """Return a duration in seconds from ``90s``, ``10m``, ``1.5h``.

    Raises:
        ConfigError: It is not one, has no unit, or is 0.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else 0.0
    if seconds <= 0:
        message = f"{name} is {text!r}, which is no duration. Write a number with ms, s, m or h, such as 90s or 10m."
        raise ConfigError(message)
    return seconds


def size_bytes(text: str, name: str = "memory") -> int | None:
    """Return a size in bytes from ``512MiB``, ``4GiB``; ``None`` for ``auto``, 0 for ``off``.

    Raises:
        ConfigError: It is not one.
    """
    if text in {"auto", "off"}:
        return None if text == "auto" else 0
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNIT_BYTES[match[2]]) if match else 0
    if size <= 0:
        message = (
            f"{name} is {text!r}, which is no size. Write a number with MiB or GiB, such as 4GiB, or auto, or off."
        )
        raise ConfigError(message)
    return size


def read(path: Path) -> Config:
    """Return the configuration of a file.

    Raises:
        ConfigError: It cannot be read, is not YAML, has an unknown key or a value of the wrong
            type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"configuration {path} cannot be read: {getattr(error, 'strerror', None) or error}."
        raise ConfigError(message) from error
    config = decode(parse(text, f"configuration {path}") or {}, str(path))
    return msgspec.structs.replace(config, candidates=tuple(_placed(each, path.parent) for each in config.candidates))


def _placed(candidate: Candidate, folder: Path) -> Candidate:
    """Return a candidate whose interpreter is found from anywhere: a path is meant from the file's folder."""
    if not candidate.python or not {"/", "\\"} & set(candidate.python):
        return candidate
    return msgspec.structs.replace(candidate, python=str(folder.resolve() / candidate.python))


def parse(text: str, where: str) -> Any:  # noqa: ANN401 - what YAML may be; `decode` says what it must be
    """Return what YAML says, a key written twice refused.

    Raises:
        ConfigError: It is not YAML; the message begins with ``where``.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, made stricter
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        message = f"{where} is not YAML{at}: {getattr(error, 'problem', None) or error}."
        raise ConfigError(message) from error


class _Loader(yaml.SafeLoader):
    """Read YAML safely, ``2e-3`` as a number, and refuse a key that is written twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """Return a mapping whose keys are each written once."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                problem = f"key {key!r} is written twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


# PyYAML follows YAML 1.1, where `2e-3` is text; YAML 1.2 and every reader of this file take it for a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+"),
    list("-+.0123456789"),
)


def decode(plain: object, where: str) -> Config:
    """Return the configuration of plain values.

    Raises:
        ConfigError: An unknown key (the nearest known one is named), a wrong type, or values that
            contradict.
    """
    if isinstance(plain, dict):
        plain = {str(key).replace("-", "_"): value for key, value in plain.items()}
    _refuse_unknown(plain, Config, where, "")
    try:
        config = msgspec.convert(plain, Config)
    except msgspec.ValidationError as error:
        message = f"{where}: {_told(str(error))}"
        raise ConfigError(message) from error
    check(config, where)
    return config


#: What msgspec calls types, and what a reader calls them.
_TYPES: Final = {
    "int": "a whole number", "str": "text", "array": "a list", "object": "a mapping", "bool": "true or false",
    "float": "a number", "null": "nothing",
}  # fmt: skip
_VALIDATION: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)


def _told(error: str) -> str:
    """Return a validation error as what, got and allowed."""
    match = _VALIDATION.fullmatch(error)
    what, path = (match["what"], (match["path"] or "").lstrip(".")) if match else (error, "")
    expected = re.fullmatch(r"Expected `(.*)`, got `(.*)`", what)
    if expected:
        allowed = " or ".join(_TYPES.get(name.strip(), name.strip()) for name in expected[1].split("|"))
        return f"{path or 'the file'} is {_TYPES.get(expected[2], expected[2])}; {allowed} is expected."
    enum = re.fullmatch(r"Invalid enum value (.*)", what)
    if enum:
        return f"{path} is {enum[1]}; {_allowed(path)}."
    missing = re.fullmatch(r"Object missing required field `(.*)`", what)
    if missing:
        return f"{path} has no {missing[1]!r}. Add it."
    return f"{path}: {what}."


def _allowed(path: str) -> str:
    name = path.rpartition(".")[2]
    words = _WORDS.get(name if "." not in path else f"{path.partition('[')[0].partition('.')[0]}.{name}", ())
    return f"allowed: {', '.join(words)}" if words else "it is not one of the allowed values"


_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "seed": ("a number", "commit", "random"),
    "strictness": ("tolerance", "ulp", "bitwise"),
    "workers": ("a number", "auto"),
    "fail_on": ("misaligned", "new", "never", "flaky"),
    "candidates.backend": ("torch", "torch.compile", "fx", "onnxruntime", "substitute", "module"),
    "candidates.mode": ("eager", "graph"),
    "reference.device": ("cpu", "cuda", "auto"),
    "reference.backend": ("torch",),
}


def _refuse_unknown(plain: object, kind: type, where: str, at: str) -> None:
    if not isinstance(plain, dict):
        return
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in plain.items():
        if key not in fields:
            nearest = difflib.get_close_matches(str(key), fields, 1, 0.5)
            hint = f"Did you mean {nearest[0]!r}?" if nearest else f"Known: {', '.join(sorted(fields))}."
            message = f"{where}: unknown key {at}{key!r}. {hint}"
            raise ConfigError(message)
        item = _SECTIONS.get(key) if kind is Config else None
        if item is not None:
            for i, entry in enumerate(value if isinstance(value, list) else [value]):
                _refuse_unknown(entry, item, where, f"{key}[{i}]." if isinstance(value, list) else f"{key}.")


_SECTIONS: Final[dict[str, type]] = {
    "reference": Reference, "candidates": Candidate, "tolerances": ToleranceRule, "known": Known,
}  # fmt: skip


def check(config: Config, where: str) -> None:
    """Refuse values that contradict one another.

    Raises:
        ConfigError: One of them does.
    """
    duration_s(config.case_timeout, f"{where}: case_timeout")
    size_bytes(config.memory, f"{where}: memory")
    if config.budget is not None:
        duration_s(config.budget, f"{where}: budget")
    for name, number in (("cases", config.cases), ("workers", config.workers)):
        if isinstance(number, int) and number < 1:
            message = f"{where}: {name} is {number}. Give 1 or more."
            raise ConfigError(message)
    if isinstance(config.seed, int) and not 0 <= config.seed < SEEDS:
        message = f"{where}: seed is {config.seed}. Give 0 to {SEEDS - 1}."
        raise ConfigError(message)
    names = [candidate.name for candidate in config.candidates]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        message = f"{where}: two candidates are named {doubled[0]!r}. Give each a name of its own."
        raise ConfigError(message)
    for number, row in enumerate(config.tolerances):
        try:
            Tolerance(row.rtol, row.atol)
        except ToleranceError as error:
            message = f"{where}: tolerances[{number}]: {error}"
            raise ConfigError(message) from error
    for candidate in config.candidates:
        _check_candidate(candidate, where)


def _check_candidate(candidate: Candidate, where: str) -> None:
    if candidate.shapes is not None and candidate.shapes < 0:
        message = f"{where}: candidate {candidate.name!r} has shapes: {candidate.shapes}. Give 0 or more."
        raise ConfigError(message)
    if candidate.backend == "substitute" and not candidate.replace:
        message = (
            f"{where}: candidate {candidate.name!r} replaces nothing. Give replace: {{operator: module.function}}."
        )
        raise ConfigError(message)
    _check_options(candidate, where)
    _check_transform(candidate, where)
    _check_device(candidate, where)
    _check_module(candidate, where)
    for operator, path in candidate.replace.items():
        if not _PATH.fullmatch(path):
            message = f"{where}: candidate {candidate.name!r} replaces {operator} by {path!r}. Write module.function."
            raise ConfigError(message)


def _check_options(candidate: Candidate, where: str) -> None:
    allowed = _OPTIONS.get(candidate.backend, frozenset())
    unknown = sorted(candidate.options.keys() - allowed)
    if not unknown:
        return
    nearest = difflib.get_close_matches(unknown[0], allowed, 1, 0.5)
    known = f"Known: {', '.join(sorted(allowed))}." if allowed else "It takes none: drop `options`."
    hint = f"Did you mean {nearest[0]!r}?" if nearest else known
    message = (
        f"{where}: candidate {candidate.name!r} has option {unknown[0]!r}, which {candidate.backend} has not. {hint}"
    )
    raise ConfigError(message)


def _check_transform(candidate: Candidate, where: str) -> None:
    if not candidate.transform:
        return
    if candidate.backend != "fx":
        message = (
            f"{where}: candidate {candidate.name!r} has a transform, which backend {candidate.backend} does not run. "
            "Write backend: fx."
        )
        raise ConfigError(message)
    if not _PATH.fullmatch(candidate.transform):
        message = f"{where}: candidate {candidate.name!r} has transform {candidate.transform!r}. Write module.function."
        raise ConfigError(message)


def _check_device(candidate: Candidate, where: str) -> None:
    """Refuse a device that nothing registers."""
    if candidate.device in DEVICES:
        return
    known = f"{where}: candidate {candidate.name!r} has device {candidate.device!r}, which is none of {_OWN_DEVICES}"
    if candidate.backend == "module":
        message = f"{known}. A framework of backend module runs on one of these."
    elif not candidate.module:
        message = f"{known}. Write module: with the module that registers it, such as torch_npu, or one of these."
    elif not _NAME.fullmatch(candidate.device):
        message = f"{known}. Write the name that module {candidate.module!r} registers, such as npu."
    else:
        return
    raise ConfigError(message)


def _check_module(candidate: Candidate, where: str) -> None:
    if candidate.backend == "module":
        if not _MODULE.fullmatch(candidate.module):
            message = (
                f"{where}: candidate {candidate.name!r} has module {candidate.module!r}. "
                "Write the name of a framework's module, such as oneflow."
            )
            raise ConfigError(message)
        if candidate.mode == "graph" and candidate.module not in GRAPHS:
            message = (
                f"{where}: candidate {candidate.name!r} has mode: graph, and of module {candidate.module!r} no graph "
                f"mode is known. Graph modes: {', '.join(GRAPHS)}. Write mode: eager, or leave it out."
            )
            raise ConfigError(message)
        return
    if candidate.mode == "graph":
        message = (
            f"{where}: candidate {candidate.name!r} has mode: graph, which backend {candidate.backend} does not have. "
            "Write backend: module, or backend: torch.compile for graphs of torch."
        )
        raise ConfigError(message)
    if candidate.device not in DEVICES and not _MODULE.fullmatch(candidate.module):
        message = (
            f"{where}: candidate {candidate.name!r} has module {candidate.module!r}. "
            f"Write the name of the module that registers device {candidate.device!r}, such as torch_npu."
        )
        raise ConfigError(message)
    if candidate.device in DEVICES and candidate.module:
        message = (
            f"{where}: candidate {candidate.name!r} has 'module', which backend {candidate.backend} does not use on "
            f"device {candidate.device}. Write backend: module, or device: with the name that the module registers."
        )
        raise ConfigError(message)
    for key in ("python", "mapping"):
        if getattr(candidate, key):
            message = (
                f"{where}: candidate {candidate.name!r} has {key!r}, which backend {candidate.backend} does not use. "
                "Write backend: module."
            )
            raise ConfigError(message)


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


def shapes_of(candidates: Iterable[Candidate]) -> int:
    """Return how many sets of sizes and choices a test's cases share in a run of candidates, 0: each has its own.

    All run the same cases, so the fewest that one of them asks for hold for all.
    """
    asked = [
        candidate.shapes if candidate.shapes is not None else SHAPES.get(candidate.module, 0)
        for candidate in candidates
    ]
    return min((number for number in asked if number), default=0)


def find(folder: Path) -> Path | None:
    """Return the nearest ``autotest.yml``, in ``folder`` or above."""
    for parent in (folder, *folder.parents):
        path = parent / FILE_NAME
        if path.is_file():
            return path
    return None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``autotest.yml``, for editors."""
    schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(Config)))
    return schema
