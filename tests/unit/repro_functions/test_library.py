"""A script takes the functions that it calls, each once, and binds every name that they leave to it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ci_autotest.errors import ProgramError
from ci_autotest.program.function_source import FunctionLibrary
from ci_autotest.program.repro.script import of_library

FOLDER = Path(__file__).parents[3] / "ci_autotest" / "repro_functions"


def test_used_by__a_call__brings_what_it_uses_once_and_nothing_else():
    library = FunctionLibrary(of_library("sides", "tensors"))
    texts = library.used_by("status = main()")
    heads = [text.partition("(")[0] for text in texts]
    assert heads == ["def main", "def apart", "def assert_alike"]
    assert library.used_by("main()\napart(1, 2)") == []
    assert library.imports == {"import torch"}
    assert not any("->" in text or ": Any" in text for text in texts)


def test_used_by__two_modules_with_one_name__takes_the_first():
    texts = FunctionLibrary(of_library("exact_tensors", "tensors")).used_by("apart(1, 2)")
    assert sum(text.startswith("def assert_alike") for text in texts) == 1
    assert any("signs of zeros" in text for text in texts)


def test_used_by__a_local_variable_named_as_a_function__brings_nothing():
    assert FunctionLibrary(of_library("tensors")).used_by("def run():\n    plain = 1\n    return plain") == []


def test_library__module_that_is_missing__is_one_sentence():
    with pytest.raises(ProgramError, match=r"the text of ci_autotest\.repro_functions\.nothing cannot be read"):
        FunctionLibrary(of_library("nothing")).used_by("main()")


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_functions__of_scripts__import_one_another_and_nothing_else_of_this_package(path: Path):
    """They run where the package is not."""
    tree = ast.parse(path.read_text("utf-8"))
    own = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    own = [name for name in own if name.startswith("ci_autotest")]
    assert all(name.startswith("ci_autotest.repro_functions") for name in own), own
