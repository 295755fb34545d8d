"""Two files become a project: which functions are meant, what is drawn, and what the programs of a finding name."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from ci_autotest.errors import UsageError
from ci_autotest.verify.subject import (
    Description,
    Pair,
    SubjectPlace,
    common_name,
    copied,
    place_of,
    stated_name,
    write_project,
)

TENSOR = {"shape": [16, 32], "dtype": "float32", "ends": [-1.0, 1.0]}


def project(
    tmp_path: Path, *, reference: str = "problem.py", kernel: str = "kernel.py", **about: Any
) -> tuple[str, Any, list[str]]:
    """Return the test's text, the candidate's row, and the names of the files."""
    (tmp_path / "own").mkdir()
    for name in {reference, kernel}:
        (tmp_path / "own" / name).write_text("")
    root = tmp_path / "root"
    root.mkdir()
    (root / "candidate").mkdir()
    candidate = copied(SubjectPlace(tmp_path / "own" / kernel, "g"), root)
    described = Description(**{"chosen": "f", "kind": "function", "inputs": [TENSOR], **about})
    has_parameters = bool(described.parameters)
    pair = Pair(SubjectPlace(tmp_path / "own" / reference, "f"), candidate, described, described.kind, has_parameters)
    write_project(root, pair, cases=3, is_forward_only=True, visible=[])
    (row,) = json.loads((root / "autotest.yml").read_text())["candidates"]
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*.py"))
    for file in files:
        ast.parse((root / file).read_text())
    return (root / "autotest_verify.py").read_text(), row, files


def test_write_project__two_functions__programs_name_the_users_own(tmp_path: Path):
    text, row, files = project(tmp_path)
    assert row["replace"] == {"problem.f": "kernel.g"}
    assert row["sandbox"] == [str(tmp_path / "root" / "candidate")]
    assert files == ["autotest_verify.py", "candidate/kernel.py", "problem.py"]
    assert (
        "return problem.f(random_tensor(dims=[n16, n32], dtype=torch.float32, low=-1.0, high=1.0, requires_grad=False))"
        in text
    )


@pytest.mark.parametrize(
    "names",
    [("solution.py", "solution.py"), ("json.py", "kernel.py"), ("torch.py", "kernel.py"), ("a-b.py", "kernel.py")],
)
def test_write_project__name_that_is_taken__is_called_by_a_function_of_ours(names: tuple[str, str], tmp_path: Path):
    _, row, files = project(tmp_path, reference=names[0], kernel=names[1])
    assert row["replace"] == {"verify_reference.call": "verify_candidate.call"}
    assert {"verify_reference.py", "candidate/verify_candidate.py"} <= set(files)


def test_write_project__module__its_parameters_are_inputs_and_their_sizes_stay(tmp_path: Path):
    weight = {"shape": [24, 32], "dtype": "float32", "ends": [-0.2, 0.2]}
    text, _, _ = project(tmp_path, kind="module", init=[32, 24], parameters={"linear.weight": weight})
    assert "dims=[24, 32], dtype=torch.float32, low=-0.2, high=0.2" in text
    assert "dims=[n16, 32]" in text
    shim = (tmp_path / "root" / "candidate" / "verify_candidate.py").read_text()
    assert "torch.func.functional_call(_model, {'linear.weight': p0}, (x0, ))" in shim


def test_write_project__buffer__is_a_copy_for_each_call(tmp_path: Path):
    mean = {"shape": [32], "dtype": "float32", "ends": [0.0, 0.0], "is_buffer": True}
    text, _, _ = project(tmp_path, kind="module", init=[32], parameters={"running_mean": mean})
    assert "dims=[32], dtype=torch.float32, low=-0.5, high=0.5, requires_grad=False" in text
    shim = (tmp_path / "root" / "verify_reference.py").read_text()
    assert "functional_call(_model, {'running_mean': p0.clone()}, (x0, ))" in shim


@pytest.mark.parametrize(
    ("description", "text"),
    [
        ({"value": None}, "None"),
        ({"value": 0.5}, "0.5"),
        ({"shape": [4], "dtype": "bool", "ends": [0, 1]}, "random_tensor(dims=[n4], dtype=bool)"),
        (
            {"shape": [4], "dtype": "int64", "ends": [0, 9]},
            "random_tensor(dims=[n4], dtype=torch.int64, low=0, high=10)",
        ),
        (
            {"shape": [4], "dtype": "float32", "ends": [1.0, 1.0]},
            "random_tensor(dims=[n4], dtype=torch.float32, low=0.5, high=1.5, requires_grad=False)",
        ),
        (
            {"shape": [], "dtype": "float32", "ends": [0.0, 1.0]},
            "random_tensor(dims=[], dtype=torch.float32, low=0.0, high=1.0, requires_grad=False)",
        ),
    ],
)
def test_write_project__every_input__is_drawn_as_the_example_is(description: dict[str, Any], text: str, tmp_path: Path):
    found, _, _ = project(tmp_path, inputs=[description])
    assert f"problem.f({text})" in found


def test_write_project__size_that_the_reference_fixes__stays(tmp_path: Path):
    text, _, _ = project(tmp_path, fixed=[32])
    assert "dims=[n16, 32]" in text


@pytest.mark.parametrize(
    ("text", "name"), [("problem.py", ""), ("problem.py:f", "f"), ("pack.kernels:g", "g"), ("pack/kernels.py:g", "g")]
)
def test_place_of__files_and_modules__are_found(text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack").mkdir()
    for file in ("problem.py", "pack/kernels.py"):
        (tmp_path / file).write_text("")
    assert place_of(text, "REFERENCE").name == name


def test_place_of__nothing_there__is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"CANDIDATE 'no\.where:f' is neither a file nor a module below this folder"):
        place_of("no.where:f", "CANDIDATE")


def test_common_name__one_name_in_both__is_meant():
    both = Description(callables={"f": "function", "helper": "function"})
    assert common_name(both, Description(callables={"f": "function", "other": "function"})) == "f"
    with pytest.raises(UsageError, match="REFERENCE defines f, helper, CANDIDATE nothing"):
        common_name(both, Description())


@pytest.mark.parametrize(
    ("reference", "candidate", "name"),
    [
        ("def f(x): pass\ndef get_inputs(): pass", "def f(x): pass\ndef own(): pass", "f"),
        ("def f(x): pass", "f = print", ""),
        ("def f(x): pass\ndef g(x): pass", "def f(x): pass\ndef g(x): pass", ""),
        ("def f(x): pass\ng = 1", "def f(x): pass\nfor g in (): pass", ""),
        ("class Model: pass", "class ModelNew: pass", ""),
        ("from a import f", "def f(x): pass", ""),
        ("def _f(x): pass", "def _f(x): pass", ""),
        ("def f(x:", "def f(x): pass", ""),
    ],
)
def test_stated_name__files_that_are_only_read__name_what_is_plain(
    reference: str, candidate: str, name: str, tmp_path: Path
):
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file, text in zip(files, (reference, candidate), strict=True):
        file.write_text(text)
    assert stated_name(files) == name
