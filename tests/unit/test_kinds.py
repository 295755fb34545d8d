"""A kind of candidate is one type: nothing outside of its own rooms spells it, and its keys are its own."""

from __future__ import annotations

import ast
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ci_autotest
from ci_autotest.config import decode
from ci_autotest.errors import ConfigError
from ci_autotest.kinds import KINDS, ModuleCandidate, TorchCandidate, running_as
from ci_autotest.program.note import note_of

PACKAGE = Path(ci_autotest.__file__).parent
#: Where kinds are at home: their keys and checks, how their backends are made, and what their repros need.
ROOMS = ("kinds/", "backends/", "program/note.py")
#: Where such a word is something else: names of built-in candidates, a module of a script, a function of PyTorch's.
OTHERS = {
    "config/values.py": {"torch.compile", "onnxruntime"},
    "program/repro/torch_script.py": {"onnxruntime"},
    "program/codegen.py": {"fx"},
    "record/unsupported_uses.py": {"torch.compile"},
}
#: Kinds whose names say nothing else.
NAMES = frozenset(KINDS) - {"torch", "module", "export"}
#: What a row of each kind has to have.
ROWS: dict[str, dict[str, Any]] = {
    "fx": {"transform": "a.b"}, "export": {"compile": "a.b"}, "substitute": {"replace": {"torch.exp": "a.b"}},
    "module": {"module": "toy"}, "dtensor": {"ranks": 2}, "ddp": {"ranks": 2}, "fsdp": {"ranks": 2},
}  # fmt: skip


def test_package__outside_of_the_rooms_of_kinds__spells_no_kind():
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(ROOMS):
            continue
        words = {
            node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)
        } & NAMES
        if words - OTHERS.get(name, set()):
            found[name] = words
    assert not found


@pytest.mark.parametrize("kind", KINDS)
def test_decode__row_of_each_kind__is_its_type(kind: str):
    (found,) = decode({"candidates": [{"name": "c", "backend": kind, **ROWS.get(kind, {})}]}, "f").candidates
    assert type(found) is KINDS[kind]
    assert found.backend == kind
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
    assert note_of({"backend": kind}).backend == kind


@pytest.mark.parametrize(
    "value", [float("inf"), {"a": [float("nan")]}, {1: 2}, {"a": date(2020, 1, 1)}, {"a": b"x"}, {"a": {1, 2}}], ids=str
)
def test_decode__option_that_a_worker_would_get_as_another__is_refused(value: object):
    row = {"name": "c", "backend": "export", "compile": "a.b", "options": {"key": value}}
    with pytest.raises(ConfigError, match="candidate 'c' has options with"):
        decode({"candidates": [row]}, "f")


def test_running_as__key_that_the_other_kind_has_not__is_refused():
    with pytest.raises(ConfigError, match="has 'load', which torch runs without, as module"):
        running_as(TorchCandidate(name="c", load=("a.so",)), ModuleCandidate, module="toy")
    found = running_as(TorchCandidate(name="c", device="npu", module="toy_npu"), ModuleCandidate, module="toy")
    assert (found.module, found.device) == ("toy", "npu")


@pytest.mark.parametrize("kind", KINDS)
def test_decode__key_of_another_kind__says_to_which_it_belongs(kind: str):
    """A file of before may have such a key with the value that says what is so without it."""
    own = {field.encode_name for field in msgspec.structs.fields(KINDS[kind])}
    plain = {"name": "c", "backend": kind, **ROWS.get(kind, {})}
    for key, of_others in (("guard", "substitute"), ("wrap", "ddp or fsdp"), ("takes", "export")):
        if key not in own:
            said = f"has '{key}', which backend {kind} does not use. Write backend: {of_others}, or remove it."
            with pytest.raises(ConfigError, match=said):
                decode({"candidates": [{**plain, key: "module" if key == "takes" else "x"}]}, "f")
    without = {"guard": None, "wrap": "", "takes": "program", "mode": "eager", "mesh": [], "isolated": False}
    quiet = {key: value for key, value in without.items() if key not in own}
    assert decode({"candidates": [{**plain, **quiet}]}, "f") == decode({"candidates": [plain]}, "f")
