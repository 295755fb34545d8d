"""Repros in a framework's own words: what is carried of an adapter, and what a host's words never become."""

from __future__ import annotations

import ast
import math
import struct
import symtable
from dataclasses import replace

import msgspec
import pytest

from ci_autotest.backends.framework.mapping.table import load_table
from ci_autotest.errors import ProgramError
from ci_autotest.program.function_source import definitions
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec
from ci_autotest.program.json_values import plain_program
from ci_autotest.program.note import HostNote, ModuleNote, Note
from ci_autotest.program.recording import Recording
from ci_autotest.program.repro.host_script import host_repro_text
from ci_autotest.program.repro.script_facts import ScriptFacts
from tests.script_names import undefined

SPEC = TensorSpec("float32", (2,), (1,), 0, 2, requires_grad=True)
DATA = struct.pack("<2f", math.nan, -0.0)
TOLD = ScriptFacts(
    title="misaligned", lines=("a line",), kind="value", rtol=1e-5, atol=1e-6, check_dtype=True, has_backward=False,
    strictness="tolerance", timeout_s=60, folders=("../..",), versions="toy 1",
)  # fmt: skip


def recorded(target: str, module: str = "toy", **host: object) -> Recording:
    steps = (
        Step(PLACEHOLDER, "t0", (SPEC,), (), "x"),
        Step(CALL_FUNCTION, target, (Ref(0),), (), "y"),
        Step(OUTPUT, "output", (Ref(1),), (), "output"),
    )
    program = Program((), steps, (replace(SPEC, requires_grad=False),))
    # What was recorded is torch's own; of it, the steps alone are counted.
    told = {
        "module": module, "version": "1", "python": "/nowhere/python", "on": "3.11", "program": plain_program(program),
        "moved": [0, 1, 2], "parameters": [],
    }  # fmt: skip
    tensors = dict.fromkeys(("t0", "cotangent_0", "output_0", "gradient_0"), DATA)
    expected = dict.fromkeys(("output_0", "gradient_0"), replace(SPEC, requires_grad=False))
    return Recording(
        program,
        tensors,
        Note(side=ModuleNote(), host=msgspec.convert({**told, **host}, HostNote), torch="2.13"),
        expected,
    )


@pytest.mark.parametrize("module", ["toy", "paddle", "jax"])
def test_host_repro_text__any_framework__is_python_and_needs_neither_torch_nor_this_package(module: str):
    text = host_repro_text(recorded(f"{module}.exp", module), TOLD)

    tree = ast.parse(text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"os", "sys", "pathlib", "numpy", module}
    assert f"y = {module}.exp(x)" in text
    assert "np.array([float('nan'), -0.0], 'float32')" in text


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("toy.exp", {"module": "os; evil()"}),
        ("toy.exp); evil(", {}),
        ("toy.exp", {"module": ""}),
        ("toy.exp", {"module": "os"}),
        ("os.system", {}),
        ("builtins.exec", {}),
    ],
)
def test_host_repro_text__what_is_no_name__is_never_printed_as_code(target: str, host: dict):
    with pytest.raises(ProgramError, match=r"never printed as code|nothing to print as code"):
        host_repro_text(recorded(target, **host), TOLD)


def test_host_repro_text__a_version_that_ends_its_string__stays_text():
    text = host_repro_text(recorded("toy.exp", version='1"); evil(); ("\nevil()'), TOLD)

    assert "evil" not in {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("host", [{"moved": []}, {"program": []}, {"program": [0, [["output"]]]}])
def test_host_repro_text__a_damaged_note__is_refused(host: dict):
    with pytest.raises(ProgramError, match=r"is damaged|'moved'"):
        host_repro_text(recorded("toy.exp", **host), TOLD)


def test_host_repro_text__a_value_named_as_its_adapter__does_not_hide_it():
    recording = recorded("adapters.batch_1d", "paddle")
    recording.note.host.program[1][1][4] = "batch_1d"  # type: ignore[index]

    text = host_repro_text(recording, TOLD)

    assert "batch_1d_0 = batch_1d(x)" in text


def test_host_repro_text__a_seed_that_is_no_number__is_refused():
    recording = recorded("toy.exp")
    recording.note.host.program[1][1][6] = "0); evil("  # type: ignore[index]

    with pytest.raises(ProgramError, match="a number is expected"):
        host_repro_text(recording, TOLD)


def adapters(framework: str) -> list[str]:
    rows = load_table(framework).rows.values()
    named = [name for row in rows for name in (row.to, row.inplace) if name.startswith("adapters.")]
    named += [name for row in rows for name in (*row.adapt.values(), row.promote, row.result) if name]
    return sorted({name.removeprefix("adapters.") for name in named})


@pytest.mark.parametrize("framework", ["jax", "oneflow", "paddle"])
def test_definitions__the_adapters_of_a_table__stand_alone_and_beside_one_another(framework: str):
    names = adapters(framework)

    text = definitions(f"ci_autotest.host.adapters.{framework}", names)

    tree = ast.parse(text)
    bound = {symbol.get_name() for symbol in symtable.symtable(text, "<text>", "exec").get_symbols()}
    assert undefined(text) == set()
    assert set(names) <= bound
    assert not any("ci_autotest" in ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom))


def test_host_repro_text__value_with_the_name_of_what_the_script_calls__has_another():
    found = recorded("adapters.argmax", "oneflow")
    steps = [
        step._replace(name=name) for step, name in zip(found.program.body, ("tensor", "argmax", "output"), strict=True)
    ]
    program = Program((), tuple(steps), found.program.cotangents)
    host = msgspec.structs.replace(found.note.host, program=plain_program(program))
    text = host_repro_text(replace(found, program=program, note=msgspec.structs.replace(found.note, host=host)), TOLD)
    assert "    tensor_0 = tensor(" in text
    assert "    argmax_0 = argmax(tensor_0)" in text


@pytest.mark.parametrize(("kind", "entry"), [("graph", "graphed()"), ("value", "main(EXPECTED)")])
def test_host_repro_text__graph_mode__runs_the_candidate_as_one_graph(kind: str, entry: str):
    text = host_repro_text(recorded("oneflow.exp", "oneflow", graph=True), replace(TOLD, kind=kind))
    assert "class GraphOfBody(framework.nn.Graph):" in text
    assert f"    status = {entry}\n" in text
    assert "gradient of" not in text
    ast.parse(text)


#: Lines that a script with literals may have, by kind.
LINES_AT_MOST = {"value": 130, "shape": 145, "dtype": 130, "metadata": 150, "gradient": 190, "crash": 240}


@pytest.mark.parametrize("kind", LINES_AT_MOST)
@pytest.mark.parametrize("module", ["toy", "paddle", "jax", "mindspore"])
def test_host_repro_text__small_finding__carries_what_its_kind_needs_and_no_more(module: str, kind: str):
    told = replace(TOLD, kind=kind, has_backward=kind == "gradient")
    text = host_repro_text(recorded(f"{module}.exp", module), told)
    compile(text, "repro.py", "exec")
    assert undefined(text) == set()
    assert text.count("\n") <= LINES_AT_MOST[kind], text
    parts = {
        "COTANGENTS": kind in {"gradient", "crash"},
        "def flags_of(": kind == "metadata",
        "def states_of(": False,
        "def stored(": False,
        "def is_own(": kind in {"shape", "crash"},
        "subprocess": kind == "crash",
    }
    assert {part: part in text for part in parts} == parts
