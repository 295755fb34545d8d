"""The runtimes of other projects: what the guide shows is what `python examples/runtimes` tries on the real packages."""

from __future__ import annotations

import ast

import yaml

from ci_autotest.config import decode
from tests.documentation import DOCS, ROOT, fences

FOLDER = ROOT / "examples/runtimes"


def functions(text: str) -> dict[str, str]:
    """Return the source of each function of a module, by its name."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.unparse(node) for node in found}


def test_guide__functions_of_runtimes__are_those_of_the_example():
    page = (DOCS / "how-to/compilers.md").read_text("utf-8")
    shown = [functions(fence.body) for fence in fences(page) if fence.file == "runtimes.py"]
    tried = functions((FOLDER / "runtimes.py").read_text("utf-8"))

    assert [*shown[0], *shown[1]] == ["openvino_runtime", "executorch_runtime", "tvm_runtime"]
    assert {name: text for each in shown for name, text in each.items()}.items() <= tried.items()


def test_example__each_row__names_a_function_that_is_there():
    rows = decode(yaml.safe_load((FOLDER / "autotest.yml").read_text("utf-8")), "autotest.yml").candidates
    tried = functions((FOLDER / "runtimes.py").read_text("utf-8"))

    assert {row.compile.removeprefix("runtimes.") for row in rows} == tried.keys()
