"""Programs as files: ``program.json`` and ``tensors.safetensors``, which hold no code.

Reading is strict: files from outside are decoded into typed values and checked before anything of them is run or
printed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import safetensors

from ci_autotest.errors import ProgramError
from ci_autotest.program.check import check_facts, check_program, check_recording, wanted_specs
from ci_autotest.program.ir import ModuleCall, Opcode, Program, Step, is_mode
from ci_autotest.program.json_values import argument_of, plain_argument, plain_spec, spec_of
from ci_autotest.program.note import note_of, plain_note
from ci_autotest.program.recording import Recording
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


class _ProgramFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    schema: str
    setup: list[_StepFile]
    body: list[_StepFile]
    cotangents: list[dict[str, Any] | None]
    note: dict[str, Any]
    expected: dict[str, dict[str, Any]] = {}
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
        "cotangents": [None if spec is None else plain_spec(spec) for spec in program.cotangents],
        "expected": {key: plain_spec(spec) for key, spec in recording.expected.items()},
        "facts": {key: plain_argument(fact) for key, fact in recording.facts.items()},
        "note": plain_note(recording.note),
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
    try:
        recording = _recording(file)
    except ValueError as error:
        message = f"program.json holds {error}."
        raise ProgramError(message) from error
    check_program(recording.program, is_permitted)
    check_facts(recording.facts)
    specs = wanted_specs(recording)
    if foreign := sorted({*file.values, *file.sha256} - specs.keys()):
        message = f"program.json holds data of {foreign[0][:80]!r}, which no placeholder names."
        raise ProgramError(message)
    return replace(recording, tensors=storages(file.values, specs), digests=file.sha256)


def _recording(file: _ProgramFile) -> Recording:
    setup = tuple(_step(step, in_setup=True) for step in file.setup)
    body = tuple(_step(step, in_setup=False) for step in file.body)
    cotangents = tuple(None if spec is None else spec_of(spec) for spec in file.cotangents)
    expected = {key: spec_of(spec) for key, spec in file.expected.items()}
    facts = {key: argument_of(fact) for key, fact in file.facts.items()}
    return Recording(Program(setup, body, cotangents), {}, note_of(file.note), expected, facts)


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
        "op": step.op, "target": step.target, "name": step.name, "args": [plain_argument(arg) for arg in step.args],
    }  # fmt: skip
    if step.kwargs:
        plain["kwargs"] = [[key, plain_argument(value)] for key, value in step.kwargs]
    if step.modes:
        plain["modes"] = list(step.modes)
    if step.seed is not None:
        plain["seed"] = step.seed
    if step.module is not None:
        plain["module"] = _plain_module(step.module)
    return plain


def _plain_module(module: ModuleCall) -> dict[str, Any]:
    pairs = {
        key: [[name, plain_argument(value)] for name, value in getattr(module, key)] for key in ("kwargs", "given")
    }
    return {**module._asdict(), **pairs, "states": list(module.states), "sources": list(module.sources)}


def _step(file: _StepFile, *, in_setup: bool) -> Step:
    unknown = [mode for mode in file.modes if not (is_mode(mode) or is_refusal(mode))]
    if unknown:
        message = f"program.json names mode {unknown[0][:40]!r}; known: no_grad, autocast:bfloat16, autocast:float16."
        raise ProgramError(message)
    args = tuple(argument_of(arg) for arg in file.args)
    kwargs = tuple((key, argument_of(value)) for key, value in file.kwargs)
    module = None if file.module is None else _module(file.module)
    return Step(file.op, file.target, args, kwargs, file.name, tuple(file.modes), file.seed, in_setup, module)


def _module(file: _ModuleFile) -> ModuleCall:
    kwargs, given = (tuple((key, argument_of(value)) for key, value in each) for each in (file.kwargs, file.given))
    return ModuleCall(
        file.path, file.target, kwargs, file.training, tuple(file.states), file.constants, file.call, file.parts, given,
        tuple(file.sources), file.result,
    )  # fmt: skip
