"""Programs made anew from their files: text, graph, tensors; what is hostile is refused or harmless."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING

import pytest

from ci_autotest.program.repro.permissions import Permissions
from ci_autotest.report.evidence import MOST_PROGRAM_BYTES, TensorFact, evidence_of
from tests import program_samples as programs
from tests import report_samples as samples

if TYPE_CHECKING:
    from ci_autotest.values.finding import Finding

VALUE = samples.finding(target=programs.OPERATOR)
GRADIENT = samples.finding(target=programs.OPERATOR, kind="gradient", where="gradient of x")

TEXT = """\
# no program to paste: a few lines cannot run this candidate
import torch

x = torch.ones((1, 2)).requires_grad_()
b = torch.tensor([-0.0, -0.0])
shifted = x + b
y = torch.nn.functional.layer_norm(shifted, (2,), eps=1e-05)  # misaligned"""
GRAPH = """\
flowchart TD
  s0(["x: float32[1, 2]"])
  s1(["b: float32[2]"])
  s2["shifted: operator.add"]
  s3["y: torch.nn.functional.layer_norm"]
  s4["z: operator.neg"]
  s5["z_1: operator.neg"]
  s0 --> s2
  s1 --> s2
  s2 --> s3
  s3 --> s4
  s4 --> s5
  classDef culprit fill:#ffd7d5,stroke:#cf222e,stroke-width:3px,color:#24292f
  class s3 culprit"""


def test_evidence_of__small_tensors__are_exact_literals_and_the_culprit_is_marked() -> None:
    found = evidence_of(VALUE, *programs.files())

    assert (found.program, found.graph, found.refusal) == (TEXT, "", "")


@pytest.mark.parametrize(("calls", "graph"), [(3, ""), (4, GRAPH)])
def test_evidence_of__graph__is_there_from_four_calls_on(calls: int, graph: str) -> None:
    assert evidence_of(VALUE, *programs.files(negations=calls - 2)).graph == graph


def test_evidence_of__gradient__has_its_own_path_and_the_weight_that_is_put_in() -> None:
    found = evidence_of(GRADIENT, *programs.files(negations=2))

    assert found.program.splitlines()[-5:] == [
        "y = torch.nn.functional.layer_norm(shifted, (2,), eps=1e-05)  # its backward pass is misaligned",
        "z = -y",
        "z_1 = -z",
        "z_1.backward(torch.tensor([[0.5, 0.5]]))",
        "x.grad  # misaligned",
    ]
    # The path of the gradient leads to x, which asks for one, and not to b.
    assert [line for line in found.graph.splitlines() if "gradient" in line] == [
        "  s2 -. gradient .-> s0", "  s3 -. gradient .-> s2", "  s4 -. gradient .-> s3", "  s5 -. gradient .-> s4",
    ]  # fmt: skip


def test_evidence_of__large_tensors__are_named_with_size_and_sum() -> None:
    found = evidence_of(VALUE, *programs.files(columns=100))
    recording = programs.recording(columns=100)

    assert found.tensors == tuple(
        TensorFact(name=name, dtype="float32", shape=shape, size_bytes=400,
                   sha256=hashlib.sha256(recording.tensors[name]).hexdigest())
        for name, shape in (("input_0", (1, 100)), ("input_1", (100,)), ("cotangent_0", (1, 100)))
    )  # fmt: skip
    assert "x = stored['input_0'].reshape((1, 100)).requires_grad_()" in found.program


@pytest.mark.parametrize("columns", [2, 64, 65, 100])
@pytest.mark.parametrize("finding", [VALUE, GRADIENT], ids=["value", "gradient"])
def test_evidence_of__tensors_not_loaded__is_the_same(columns: int, finding: Finding) -> None:
    program, tensors = programs.files(columns=columns)

    assert evidence_of(finding, program, None) == evidence_of(finding, program, tensors)


def test_evidence_of__tensors_not_loaded_of_an_older_version__are_named_with_their_size() -> None:
    old = json.loads(programs.files()[0])
    del old["values"], old["sha256"]

    found = evidence_of(VALUE, json.dumps(old).encode(), None)

    assert found.tensors == tuple(
        TensorFact(name=name, dtype="float32", shape=shape, size_bytes=8)
        for name, shape in (("input_0", (1, 2)), ("input_1", (2,)), ("cotangent_0", (1, 2)))
    )
    assert "x = stored['input_0'].reshape((1, 2)).requires_grad_()" in found.program


@pytest.mark.parametrize(
    "where", ["gradient of __import__('os').system('x')", "gradient of nothing", "gradient of x\nx"]
)
def test_evidence_of__gradient_of_what_is_no_value__is_no_line(where: str) -> None:
    found = evidence_of(samples.finding(target=programs.OPERATOR, kind="gradient", where=where), *programs.files())

    assert found.program.splitlines()[-1].startswith("y.backward(")


@pytest.mark.parametrize(
    ("spellings", "lines"),
    [
        ({"mykernels.layer_norm": [programs.OPERATOR]}, [f"# {programs.OPERATOR} is replaced by mykernels.layer_norm"]),
        ({"mykernels.softmax": ["torch.softmax"]}, ["# torch.softmax is replaced by mykernels.softmax"]),
        ({f"a.{'b' * 300}": [programs.OPERATOR]}, []),
    ],
)
def test_evidence_of__replacement__is_named_when_it_is_a_name(spellings: object, lines: list[str]) -> None:
    found = evidence_of(VALUE, programs.files(note={"backend": "substitute", "spellings": spellings})[0], None)

    assert found.program.splitlines()[3:-4] == lines


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{" * 100_000, id="deep"),
        pytest.param(b'{"schema": NaN}', id="NaN"),
        pytest.param(programs.edited(("schema",), "ci-autotest/program/9"), id="other schema"),
        pytest.param(programs.edited(("body", 3, "target"), "os.system"), id="target"),
        pytest.param(programs.edited(("body", 3, "target"), "torch.load"), id="operator that reads files"),
        pytest.param(programs.edited(("body", 3, "kwargs", 0, 0), "x);import os;("), id="keyword"),
        pytest.param(programs.edited(("body", 3, "args", 0), {"ref": 9}), id="reference"),
        pytest.param(programs.edited(("body", 0, "args", 0, "tensor", "shape"), [10**12]), id="terabytes"),
        pytest.param(programs.edited(("body", 0, "args", 0, "tensor", "dtype"), "object"), id="dtype"),
        pytest.param(b" " * (MOST_PROGRAM_BYTES + 1), id="too large"),
        pytest.param(programs.edited(("body", 3, "op"), "call_shell"), id="opcode"),
    ],
)
@pytest.mark.parametrize("has_tensors", [False, True])
def test_evidence_of__hostile_program__is_refused(program: bytes, has_tensors: bool) -> None:
    found = evidence_of(VALUE, program, programs.files()[1] if has_tensors else None)

    assert (found.program, found.graph, found.tensors, bool(found.refusal)) == ("", "", (), True)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("</details><img src=x onerror=1>", "value"), ("`" * 50, "value"), ('"] --> x', "value"),
        ("a\nimport os", "value"), ("\u202e", "value"), ("class", "value"), ("torch", "value"), ("len", "len_0"),
    ],
)  # fmt: skip
def test_evidence_of__hostile_name__is_one_of_our_own(name: str, shown: str) -> None:
    found = evidence_of(VALUE, programs.edited(("body", 2, "name"), name, negations=2), None)

    assert f"\n{shown} = x + b\n" in found.program
    assert f'  s2["{shown}: operator.add"]\n' in found.graph
    compile(found.program, "program", "exec")


def test_evidence_of__hostile_string_argument__is_a_literal() -> None:
    hostile = "'\"\n`" * 20 + "</details>"
    found = evidence_of(VALUE, programs.edited(("body", 3, "kwargs", 0, 1), hostile), None)

    assert repr(hostile) in found.program
    assert hostile not in found.graph


def test_evidence_of__many_steps__are_left_to_the_artifact_at_once() -> None:
    step = {"op": "call_function", "target": "operator.add", "name": "v", "args": [{"ref": 0}, 1]}
    document = json.loads(programs.files()[0])
    document["body"][2:-1] = [step] * 9_000
    document["body"][-1]["args"] = [{"ref": 5}]
    begun = time.process_time()
    found = evidence_of(VALUE, json.dumps(document, separators=(",", ":")).encode(), None)

    assert (found.refusal, time.process_time() - begun < 20) == (
        "The program has 9,003 steps: it is in the artifact.", True
    )  # fmt: skip


@pytest.mark.parametrize(
    ("names", "is_shown"), [((), False), (("refs.other",), False), (("refs.swiglu",), True), (("refs",), True)]
)
def test_evidence_of__operator_of_the_users__is_shown_only_if_the_configuration_names_it(names, is_shown) -> None:
    program = programs.edited(("body", 3, "target"), "refs.swiglu")
    found = evidence_of(VALUE, program, None, Permissions(names=frozenset(names)))
    assert ("refs.swiglu(" in found.program) is is_shown
    assert ("only operators of torch are run, and operators that the autotest.yml here names" in found.refusal) is not (
        is_shown
    )


@pytest.mark.parametrize(
    ("target", "more", "is_shown"),
    [
        ("refs.swiglu", [], True),
        ("pip.main", [{"list": ["install", "x"]}], False),
        ("pip.main", ["install"], False),
        ("os.system", [], False),
        ("torch.ops.evil.run", [], False),
    ],
)
def test_evidence_of__operator_that_a_pull_request_adds__is_shown_if_the_text_only_computes(
    target, more, is_shown
) -> None:
    document = json.loads(programs.edited(("body", 3, "target"), target))
    document["body"][3]["args"] += more
    found = evidence_of(VALUE, json.dumps(document).encode(), None, Permissions(has_new_kernels=True))
    assert (f"{target}(" in found.program) is is_shown
