"""Programs as files: ``program.json`` and ``tensors.safetensors``, which hold no code.

Reading is strict: files from outside are decoded into typed values and checked before anything of them is run or
printed.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import safetensors

from ci_autotest.errors import ProgramError
from ci_autotest.program.check import check_facts, check_program, check_recording, wanted_specs
from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import (
    Argument,
    Copy,
    Device,
    DType,
    FrameworkConstant,
    List,
    Mapping_,
    ModuleCall,
    Opcode,
    Program,
    Recording,
    Ref,
    Slice,
    Step,
    TensorSpec,
    is_mode,
)
from ci_autotest.program.refusal import is_refusal
from ci_autotest.program.targets import permits_none
from ci_autotest.program.tensor_values import Digest, check_same, plain_data, storages
from ci_autotest.values.dtypes import DTYPES, PARTS

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA: Final = "ci-autotest/program/1"
#: Greatest sizes of a program and of a tensor file, in bytes.
PROGRAM_BYTES: Final = 8 << 20
TENSOR_BYTES: Final = 1 << 30
# Each level is a call of `_argument`, so that a hostile file could otherwise exhaust Python's stack.
_DEPTH: Final = 16


class _ModuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    target: str = ""
    kwargs: list[tuple[str, Any]] = []
    training: bool = False
    states: list[str] = []
    constants: str = ""
    call: int = 0
    parts: int = 0
    given: list[tuple[str, Any]] = []
    sources: list[str] = []
    result: str | None = None


class _StepFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    op: Opcode
    target: str
    name: str
    args: list[Any]
    kwargs: list[tuple[str, Any]] = []
    modes: list[str] = []
    seed: int | None = None
    module: _ModuleFile | None = None


class _DistributionFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mesh: list[int]
    placements: list[str]


class _SpecFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    strides: list[int]
    offset: int
    storage_size: int
    requires_grad: bool
    device: str
    distribution: _DistributionFile | None = None
    state: Literal["", "parameter", "buffer"] = ""
    placements: list[str] = []


class _ProgramFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    schema: str
    setup: list[_StepFile]
    body: list[_StepFile]
    cotangents: list[_SpecFile | None]
    note: dict[str, Any]
    expected: dict[str, _SpecFile] = {}
    facts: dict[str, Any] = {}
    values: dict[str, list[Any]] = {}
    sha256: dict[str, Digest] = {}


def encode_program(recording: Recording) -> bytes:
    """Return the text of ``program.json``, with the values of small tensors and the sha256 of larger ones."""
    program = recording.program
    plain = {
        "schema": SCHEMA,
        "setup": [_plain_step(step) for step in program.setup],
        "body": [_plain_step(step) for step in program.body],
        "cotangents": [None if spec is None else _plain_spec(spec) for spec in program.cotangents],
        "expected": {key: _plain_spec(spec) for key, spec in recording.expected.items()},
        "facts": {key: _plain(fact) for key, fact in recording.facts.items()},
        "note": dict(recording.note),
        **plain_data(recording.tensors, {**program.specs, **recording.expected}),
    }
    return (json.dumps(plain, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def encode_tensors(recording: Recording) -> bytes:
    """Return the bytes of ``tensors.safetensors``, with each storage as a flat tensor; complex numbers are pairs.

    The library writes numpy arrays, which cannot be bfloat16, or takes raw pointers. Its format is a JSON head and the
    bytes (source: the safetensors format description, 0.8), so files are written here and read by the library.
    """
    specs = {**recording.program.specs, **recording.expected}
    head: dict[str, Any] = {"__metadata__": {"schema": SCHEMA}}
    offset = 0
    tensors = dict(sorted(recording.tensors.items()))
    for key, data in tensors.items():
        spec = specs[key]
        part = PARTS.get(spec.dtype)
        shape = [spec.storage_size, 2] if part else [spec.storage_size]
        end = offset + len(data)
        head[key] = {
            "dtype": DTYPES[part or spec.dtype].safetensors,
            "shape": shape,
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(head, separators=(",", ":")).encode()
    # The format pads its head with spaces, so that the data are aligned to eight bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(tensors.values())


def decode(program: bytes, tensors: bytes, is_permitted: Callable[[str], bool] = permits_none) -> Recording:
    """Return the checked recording of two files.

    Args:
        program: The program file.
        tensors: The tensor file.
        is_permitted: Whether the program may name an operator of the user's (``targets.named_in``); by default it may
            name none. ``targets.is_own`` permits all, for a program that this run has made.

    Raises:
        ProgramError: They are damaged, too large, do not match, or name something that is not allowed.
    """
    if len(tensors) > TENSOR_BYTES:
        message = f"a tensor file of {len(tensors):,} bytes is too large: {TENSOR_BYTES:,} are allowed."
        raise ProgramError(message)
    alone = decode_program(program, is_permitted)
    # The digests are held against the file below; a recording that has its data needs none.
    recording = replace(alone, tensors=_decode_tensors(tensors), digests={})
    check_recording(recording, is_permitted)
    check_same(alone, recording, wanted_specs(recording))
    return recording


def decode_program(program: bytes, is_permitted: Callable[[str], bool] = permits_none) -> Recording:
    """Return the checked recording of a program without its tensor file: it has the data of small tensors only.

    Args:
        program: The program file.
        is_permitted: As for ``decode``.

    Raises:
        ProgramError: It is damaged or too large, or names something that is not allowed.
    """
    if len(program) > PROGRAM_BYTES:
        message = f"a program of {len(program):,} bytes is too large: {PROGRAM_BYTES:,} are allowed."
        raise ProgramError(message)
    try:
        file = msgspec.json.decode(program, type=_ProgramFile)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        message = f"program.json is damaged or edited: {error}."
        raise ProgramError(message) from error
    if file.schema != SCHEMA:
        message = f"program.json has schema {file.schema[:60]!r}; this version reads {SCHEMA!r}."
        raise ProgramError(message)
    parts = [tuple(_step(step, in_setup=in_setup) for step in part) for part, in_setup in
             ((file.setup, True), (file.body, False))]  # fmt: skip
    cotangents = tuple(None if spec is None else _spec(spec) for spec in file.cotangents)
    expected = {key: _spec(spec) for key, spec in file.expected.items()}
    facts = {key: _argument(fact, 0) for key, fact in file.facts.items()}
    recording = Recording(Program(parts[0], parts[1], cotangents), {}, file.note, expected, facts)
    check_program(recording.program, is_permitted)
    check_facts(recording.facts)
    specs = wanted_specs(recording)
    if foreign := sorted({*file.values, *file.sha256} - specs.keys()):
        message = f"program.json holds data of {foreign[0][:80]!r}, which no placeholder names."
        raise ProgramError(message)
    return replace(recording, tensors=storages(file.values, specs), digests=file.sha256)


def _decode_tensors(data: bytes) -> dict[str, bytes]:
    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except Exception as error:
        message = f"the tensor file is damaged or truncated: {error}."
        raise ProgramError(message) from error
    # Sorted, because the order in which the library returns tensors changes from process to process.
    return {name: bytes(entry["data"]) for name, entry in sorted(entries)}


def _plain_step(step: Step) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "op": step.op, "target": step.target, "name": step.name, "args": [_plain(arg) for arg in step.args],
    }  # fmt: skip
    if step.kwargs:
        plain["kwargs"] = [[key, _plain(value)] for key, value in step.kwargs]
    if step.modes:
        plain["modes"] = list(step.modes)
    if step.seed is not None:
        plain["seed"] = step.seed
    if step.module is not None:
        plain["module"] = _plain_module(step.module)
    return plain


def _plain_module(module: ModuleCall) -> dict[str, Any]:
    pairs = {key: [[name, _plain(value)] for name, value in getattr(module, key)] for key in ("kwargs", "given")}
    return {**module._asdict(), **pairs, "states": list(module.states), "sources": list(module.sources)}


def _plain_spec(spec: TensorSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "dtype": spec.dtype, "shape": list(spec.shape), "strides": list(spec.strides), "offset": spec.offset,
        "storage_size": spec.storage_size, "requires_grad": spec.requires_grad, "device": spec.device,
    }  # fmt: skip
    if spec.distribution is not None:
        on = spec.distribution
        plain["distribution"] = {"mesh": list(on.mesh), "placements": list(on.placements)}
    if spec.state:
        plain["state"] = spec.state
    if spec.placements:
        plain["placements"] = list(spec.placements)
    return plain


def _plain(argument: Argument) -> Any:  # noqa: C901, PLR0911 - one arm per kind of argument
    """Return the JSON of an argument: plain values unchanged, everything else as an object with one key."""
    match argument:
        case None | bool() | int() | str():
            return argument
        case float():
            return argument if math.isfinite(argument) else {"float": str(argument)}
        case complex():
            return {"complex": [_plain(argument.real), _plain(argument.imag)]}
        case Ref(index):
            return {"ref": index}
        case DType(name):
            return {"dtype": name}
        case Device(symbol):
            return {"device": symbol}
        case FrameworkConstant(target):
            return {"constant": target}
        case tuple():
            return {"tuple": [_plain(item) for item in argument]}
        case List(items):
            return {"list": [_plain(item) for item in items]}
        case Mapping_(items):
            return {"mapping": [[key, _plain(value)] for key, value in items]}
        case Slice(start, stop, step):
            return {"slice": [_plain(start), _plain(stop), _plain(step)]}
        case Copy(ref):
            return {"copy": ref.index}
        case TensorSpec():
            return {"tensor": _plain_spec(argument)}
        case _:
            return {"ellipsis": True}


def _step(file: _StepFile, *, in_setup: bool) -> Step:
    unknown = [mode for mode in file.modes if not (is_mode(mode) or is_refusal(mode))]
    if unknown:
        message = f"program.json names mode {unknown[0][:40]!r}; known: no_grad, autocast:bfloat16, autocast:float16."
        raise ProgramError(message)
    args = tuple(_argument(arg, 0) for arg in file.args)
    kwargs = tuple((key, _argument(value, 0)) for key, value in file.kwargs)
    module = None if file.module is None else _module(file.module)
    return Step(file.op, file.target, args, kwargs, file.name, tuple(file.modes), file.seed, in_setup, module)


def _module(file: _ModuleFile) -> ModuleCall:
    kwargs, given = (tuple((key, _argument(value, 0)) for key, value in each) for each in (file.kwargs, file.given))
    return ModuleCall(
        file.path, file.target, kwargs, file.training, tuple(file.states), file.constants, file.call, file.parts, given,
        tuple(file.sources), file.result,
    )  # fmt: skip


def _spec(file: _SpecFile) -> TensorSpec:
    return TensorSpec(
        file.dtype, tuple(file.shape), tuple(file.strides), file.offset, file.storage_size, file.requires_grad,
        file.device,
        None if file.distribution is None
        else Distribution(tuple(file.distribution.mesh), tuple(file.distribution.placements)),
        file.state,
        tuple(file.placements),
    )  # fmt: skip


def _argument(plain: object, depth: int) -> Argument:  # noqa: C901, PLR0911, PLR0912 - one arm per kind of argument
    if depth > _DEPTH:
        message = f"program.json nests arguments more than {_DEPTH} deep."
        raise ProgramError(message)
    # A mapping pattern of `match` also accepts mappings with more keys than it names.
    if isinstance(plain, dict) and len(plain) != 1:
        message = f"program.json holds an argument with {len(plain)} keys: {str(plain)[:80]!r}."
        raise ProgramError(message)
    match plain:
        case None | bool() | int() | float() | str():
            return plain
        case {"ref": int(index)}:
            return Ref(index)
        case {"copy": int(index)}:
            return Copy(Ref(index))
        case {"float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"complex": [real, imag]}:
            parts = [_argument(part, depth + 1) for part in (real, imag)]
            # Otherwise the message at the end is raised.
            if all(isinstance(part, int | float) for part in parts):
                return complex(*parts)  # type: ignore[arg-type]
        case {"dtype": str(name)} if name in DTYPES:
            return DType(name)
        case {"device": "cpu" | "device" as symbol}:
            return Device(symbol)
        case {"constant": str(target)}:
            return FrameworkConstant(target)
        case {"tuple": list(items)}:
            return tuple(_argument(item, depth + 1) for item in items)
        case {"list": list(items)}:
            return List(tuple(_argument(item, depth + 1) for item in items))
        case {"mapping": list(items)}:
            return _mapping(items, depth)
        case {"slice": [start, stop, step]}:
            return Slice(*(_argument(bound, depth + 1) for bound in (start, stop, step)))
        case {"tensor": dict(spec)}:
            return _tensor_spec(spec)
        case {"ellipsis": True}:
            return ...
        case _:
            pass
    message = f"program.json holds an argument of an unknown kind: {str(plain)[:80]!r}."
    raise ProgramError(message)


def _mapping(items: list[Any], depth: int) -> Mapping_:
    try:
        pairs = [(str(key), value) for key, value in items]
    except (TypeError, ValueError):
        message = "program.json holds a mapping that is not a list of pairs."
        raise ProgramError(message) from None
    return Mapping_(tuple((key, _argument(value, depth + 1)) for key, value in pairs))


def _tensor_spec(plain: dict[str, Any]) -> TensorSpec:
    try:
        return _spec(msgspec.convert(plain, _SpecFile))
    except msgspec.ValidationError as error:
        message = f"program.json holds no valid tensor spec: {error}."
        raise ProgramError(message) from error
