"""A framework's program from outside is shown where it calls what its table names, and nothing else of it is."""

from __future__ import annotations

import ast
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ci_autotest.backends.framework.mapping.table import load_table
from ci_autotest.config.called_names import called_names
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    CALL_METHOD,
    OUTPUT,
    PLACEHOLDER,
    DType,
    FrameworkConstant,
    Program,
    Ref,
    Step,
    TensorSpec,
)
from ci_autotest.program.json_values import plain_program
from ci_autotest.program.note import HostNote, ModuleNote, Note
from ci_autotest.program.recording import Recording
from ci_autotest.program.repro.permissions import Permissions
from ci_autotest.program.repro.snippet import snippet
from ci_autotest.program.repro.snippet_checks import Facts

if TYPE_CHECKING:
    from collections.abc import Mapping

SPEC = TensorSpec("float32", (2,), (1,), 0, 2)
HERE = Permissions(names=["toy"], calls=lambda module: called_names(module, OWN_ROWS.get(module, {})))
OWN_ROWS: Mapping[str, Any] = {"toy": {"torch.exp": {"to": "toy.own.exp"}}}


def recorded(call: Step, module: str = "paddle", **host: object) -> Recording:
    def program(step: Step) -> Program:
        first = Step(PLACEHOLDER, "t0", (SPEC,), (), "x")
        return Program((), (first, step, Step(OUTPUT, "output", (Ref(1),), (), "output")))

    noted = {
        "module": module, "version": "1", "python": "python", "on": "3.11", "program": plain_program(program(call)),
        "moved": [0, 1, 2], "parameters": [],
    }  # fmt: skip
    own = program(Step(CALL_FUNCTION, "torch.exp", (Ref(0),), (), "y"))
    tensors = dict.fromkeys(("t0", "output_0"), struct.pack("<2f", 1, 2))
    return Recording(
        own,
        tensors,
        Note(side=ModuleNote(), host=msgspec.convert({**noted, **host}, HostNote), torch="2.13"),
        {"output_0": SPEC},
    )


def called(target: str, *args: Any, **kwargs: Any) -> Step:
    return Step(CALL_FUNCTION, target, (Ref(0), *args), tuple(kwargs.items()), "y")


def shown(recording: Recording) -> str:
    return snippet(recording, Facts(kind="value", name="y", rtol=1e-5, atol=1e-5, permissions=HERE)).text


@pytest.mark.parametrize(
    ("call", "module", "text"),
    [
        (called("paddle.exp"), "paddle", "y = paddle.exp(x)"),
        (called("adapters.flat"), "paddle", "y = flat(x)"),
        (called("operator.mul", 2), "paddle", "y = x * 2"),
        (called("jax.numpy.exp"), "jax", "y = jax.numpy.exp(x)"),
        (called("toy.own.exp"), "toy", "y = toy.own.exp(x)"),
        (called("toy.exp"), "toy", "y = toy.exp(x)"),
        (Step(CALL_METHOD, "exp", (Ref(0),), (), "y"), "oneflow", "y = x.exp()"),
        (called("paddle.exp", "'); evil(); ('"), "paddle", "y = paddle.exp(x, \"'); evil(); ('\")"),
    ],
)
def test_snippet__a_strangers_program_that_the_table_names__is_shown(call: Step, module: str, text: str):
    found = shown(recorded(call, module))
    assert text in found.splitlines()
    assert "evil" not in {node.id for node in ast.walk(ast.parse(found)) if isinstance(node, ast.Name)}


HOSTILE = {
    "loads a file": called("paddle.load"),
    "a name of Python's": called("os.system"),
    "a builtin": called("builtins.exec"),
    "an operator that is none": called("operator.exec"),
    "an adapter that is none": called("adapters.exec"),
    "torch": called("torch.load"),
    "code in a target": called("paddle.exp); evil(", 1),
    "code in a keyword": called("paddle.exp", **{"a=1); evil(": 1}),
    "code in a constant": called("paddle.exp", FrameworkConstant("torch.evil()")),
    "code in a dtype": called("paddle.exp", DType("float32); evil(")),
    "a method": Step(CALL_METHOD, "tofile", (Ref(0), "f"), (), "y"),
    "an unknown mode": called("paddle.exp")._replace(modes=("evil()",)),
    "code in a mode": called("paddle.exp")._replace(modes=("autocast:float32); evil(",)),
    "a later step": called("paddle.exp", Ref(2)),
}


@pytest.mark.parametrize("call", HOSTILE.values(), ids=HOSTILE)
def test_snippet__a_strangers_program_with_anything_else__is_not_shown(call: Step):
    assert shown(recorded(call)) == ""


@pytest.mark.parametrize("module", ["evil", "os", "toy.evil", "paddle; evil()", "torch"])
def test_snippet__a_strangers_module__is_not_shown(module: str):
    assert shown(recorded(called("paddle.exp"), module)) == ""


def test_snippet__a_strangers_module_with_torchs_names__has_those_that_torch_allows():
    assert shown(recorded(called("toy.load"), "toy")) == ""
    assert shown(recorded(Step(CALL_METHOD, "tofile", (Ref(0), "f"), (), "y"), "toy")) == ""


def test_snippet__code_in_a_strangers_words__stays_text():
    named = recorded(called("paddle.exp")._replace(name="y = evil()  #"), version='1"\nevil()')
    found = shown(replace(named, note=msgspec.structs.replace(named.note, torch="2.13\nevil()")))
    assert "paddle.exp(x)" in found
    assert "evil" not in found


@pytest.mark.parametrize("framework", ["jax", "paddle", "mindspore"])
def test_called_names__of_a_shipped_table__have_every_adapter_that_its_rows_name(framework: str):
    rows = load_table(framework).rows.values()
    adapters = {f"adapters.{name}" for row in rows for name in (*row.adapt.values(), row.result, row.promote) if name}
    assert adapters - called_names(framework) == set()
