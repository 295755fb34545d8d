"""The program that is shown for a finding fails with AssertionError where the fault is, and passes once it is mended."""

from __future__ import annotations

import ast
import json
import os
import sys
import time
from code import InteractiveConsole
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch as real
from torch._dynamo import register_backend

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording, with_expected
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.repro_notes import repro_note
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.kinds import AnyCandidate, CompileCandidate, FxCandidate, SubstituteCandidate, TorchCandidate
from ci_autotest.program.note import note_of, plain_note
from ci_autotest.program.repro.permissions import Permissions
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.report.evidence import evidence_of
from ci_autotest.report.finding_message import About, finding_of
from ci_autotest.report.finding_program import display_program
from tests import report_samples as samples
from tests.engine import judged, record
from tests.faults import mutating, right_exp_that_writes_its_cotangent, with_backward
from tests.pasting import paste, reported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ci_autotest.program.recording import Recording
    from ci_autotest.values.finding import Finding


def x(**how: Any) -> Any:
    return random_tensor(ndim=2, dim0=3, dim1=4, **how)


def raising(*_: object) -> None:
    message = "no kernel for this"
    raise RuntimeError(message)


def written_statistics(value: Any, mean: Any, variance: Any, *args: Any, **how: Any) -> Any:
    found = real.nn.functional.batch_norm(value, mean, variance, *args, **how)
    mean.add_(1)
    return found


def flagged(value: Any) -> Any:
    found = real.exp(value)
    value.requires_grad_()
    return found


def whole() -> Any:
    return torch.randint(0, 8, (2, 3))


def augmented() -> Any:
    value = whole()
    value &= 6
    return value


def in_place() -> Any:
    return (x(requires_grad=False) * 2).exp_() + 1


def inside_a_module() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())(x())


def under_a_tuple() -> Any:
    return torch.max(torch.exp(x()), dim=1)


def method() -> Any:
    return x().exp().sum()


def two() -> Any:
    return torch.exp(x()) * torch.sin(x())


def refused() -> Any:
    with pytest.raises(RuntimeError):
        torch.matmul(random_tensor(ndim=2, dim0=2, dim1=3), random_tensor(ndim=2, dim0=2, dim1=3))
    return torch.exp(x())


def drawn() -> Any:
    value = x()
    return torch.exp(torch.rand_like(value) * value)


def exp(**how: Any) -> Callable[[], Any]:
    return lambda: torch.exp(x(**how))


LINEAR, NORM, RELU = (f"torch.nn.functional.{name}" for name in ("linear", "batch_norm", "relu"))
#: Operator, body, faulty kernel, kind.
ROWS: dict[str, tuple[str, Callable[[], Any], Callable[..., Any], str]] = {
    "value": ("torch.exp", exp(), lambda v: real.exp(v) + 1, "value"),
    "value of integers": ("torch.add", lambda: torch.add(x(dtype=int), 2**60), lambda v, o: v + o + 257, "value"),
    "value of large tensors": ("torch.exp", lambda: torch.exp(random_tensor(2, 20, 30)), lambda v: real.exp(v) + 1, "value"),
    "value in complex numbers": ("torch.exp", exp(dtype=complex, low=-1, high=1), lambda v: real.exp(v) + 1, "value"),
    "value in bfloat16": ("torch.exp", exp(dtype=real.bfloat16), lambda v: real.exp(v) + 1, "value"),
    "value by a method": ("torch.exp", method, lambda v: real.exp(v) + 1, "value"),
    "value by an infix": ("torch.mul", lambda: x() * 2, lambda v, o: real.mul(v, o) + 1, "value"),
    "value in place": ("torch.exp", in_place, lambda v: real.exp(v) + 1, "value"),
    "value inside a module": (LINEAR, inside_a_module, lambda v, w, b: real.nn.functional.linear(v, w, b) + 1, "value"),
    "value of a sign that is a keyword": ("torch.bitwise_and", lambda: whole() & whole(), lambda v, o: (v & o) ^ 1, "value"),
    "value of another sign that is a keyword": ("torch.bitwise_or", lambda: whole() | whole(), lambda v, o: (v | o) ^ 1, "value"),
    "value of a reflected sign": ("torch.sub", lambda: 3 - x(), lambda v, o: real.sub(v, o) + 1, "value"),
    "value of a unary sign": ("torch.neg", lambda: -x(), lambda v: real.neg(v) + 1, "value"),
    "value of an augmented assignment": ("torch.bitwise_and", augmented, lambda v, o: (v & o) ^ 1, "value"),
    "value of a sign under a module": ("torch.sub", lambda: torch.nn.ReLU()(3 - x()), lambda v, o: real.sub(v, o) + 1, "value"),
    "value of a keyword sign under a module": (
        "torch.bitwise_and", lambda: torch.nn.Identity()(whole() & whole()), lambda v, o: (v & o) ^ 1, "value",
    ),
    "value of a function in place": ("torch.exp", lambda: torch.exp_(x(requires_grad=False) * 2), lambda v: real.exp(v) + 1, "value"),
    "value of an activation in place": (
        RELU, lambda: torch.nn.functional.relu(x(requires_grad=False) * 2, inplace=True), lambda v: real.relu(v) + 1, "value",
    ),
    "value of a module in place": (RELU, lambda: torch.nn.ReLU(inplace=True)(x() * 2), lambda v: real.relu(v) + 1, "value"),
    "value of a module that may write": (RELU, lambda: torch.nn.ReLU()(x()), lambda v: real.relu(v) + 1, "value"),
    "gradient in place": ("torch.exp", lambda: (x() * 2).exp_(), with_backward(real.exp, lambda v, grad: grad), "gradient"),
    "value by a method of other arguments": ("torch.permute", lambda: x().permute(1, 0), lambda v, dims: real.permute(v, dims) + 1, "value"),
    "value by a method of another order": (
        "torch.where", lambda: x().where(x() > 0, x()), lambda mask, v, o: real.where(mask, v, o) + 1, "value",
    ),
    "value of a tuple": ("torch.max", under_a_tuple, lambda v, dim: (real.max(v, dim)[0], real.max(v, dim)[1] + 1), "value"),
    "value in a chain": ("torch.exp", two, lambda v: real.exp(v) + 1, "value"),
    "gradient": ("torch.exp", exp(), with_backward(real.exp, lambda v, grad: grad), "gradient"),
    "gradient in a chain": ("torch.exp", two, with_backward(real.exp, lambda v, grad: grad), "gradient"),
    "gradient inside a module": (
        LINEAR, inside_a_module, lambda v, w, b: real.nn.functional.linear(v, w.detach() * 1 + w - w, b), "gradient",
    ),
    "shape": ("torch.exp", exp(), lambda v: real.exp(v)[:1], "shape"),
    "dtype": ("torch.exp", exp(), lambda v: real.exp(v).double(), "dtype"),
    "nothing": ("torch.exp", exp(), lambda _: None, "shape"),
    "metadata": ("torch.exp", exp(), lambda v: real.exp(v).detach(), "metadata"),
    "an array": ("torch.exp", exp(requires_grad=False), lambda v: real.exp(v).numpy(), "metadata"),
    "metadata of a leaf": ("torch.exp", exp(), lambda v: real.exp(v.detach()).requires_grad_(), "metadata"),
    "state": (NORM, lambda: torch.nn.BatchNorm1d(4)(x()), written_statistics, "state"),
    "aliasing": ("torch.transpose", lambda: torch.transpose(x(), 0, 1), lambda v, i, j: v.transpose(i, j).clone(), "aliasing"),
    "mutation": ("torch.exp", exp(requires_grad=False), mutating(real.exp), "mutation"),
    "mutation of a flag": ("torch.exp", exp(requires_grad=False), flagged, "mutation"),
    "mutation of a cotangent": ("torch.exp", exp(), right_exp_that_writes_its_cotangent, "mutation"),
    "error": ("torch.exp", exp(), raising, "error"),
    "error of the backward pass": ("torch.exp", exp(), with_backward(real.exp, raising), "error"),
    "leniency": ("torch.matmul", refused, lambda a, b: a @ b.T, "leniency"),
}  # fmt: skip


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("mykernels")
    monkeypatch.setitem(sys.modules, "mykernels", module)
    return module


def resolved(operator: str) -> Any:
    found: Any = real
    for name in operator.split(".")[1:]:
        found = getattr(found, name)
    return found


def found_by(body: Callable[[], Any], candidate: AnyCandidate, rules: Rules) -> tuple[Recording, Finding]:
    """Return what a worker finds, with the program as a worker notes it."""
    case = judged(record(body), SubstituteBackend(candidate.replace), rules)
    assert case.verdict.outcome == "misaligned", case.verdict
    note = msgspec.structs.replace(repro_note(candidate, case.live.program.steps), strictness=rules.strictness)
    recording = with_expected(to_recording(case.live, note), case.live, TorchBackend())
    return reported(recording), finding_of(case.verdict, About(candidate.name, "a.py::test", "test", 0, 0))


def check(
    text: str, recording: Recording, folder: Path, monkeypatch: pytest.MonkeyPatch, mend: Callable[[], None]
) -> None:
    """Hold a program to what it is shown for: it fails while there is a fault, and passes once there is none."""
    with pytest.raises(AssertionError):
        paste(text, recording, folder, monkeypatch)
    mend()
    paste(text, recording, folder, monkeypatch)


@pytest.mark.parametrize(("operator", "body", "fault", "kind"), ROWS.values(), ids=ROWS)
def test_display_program__of_a_kernel__fails_while_it_is_faulty_and_passes_when_it_is_mended(
    operator: str,
    body: Any,
    fault: Any,
    kind: str,
    kernels: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    name = operator.rpartition(".")[2]
    setattr(kernels, name, fault)
    candidate = SubstituteCandidate(name="kernels", replace={operator: f"mykernels.{name}"})
    recording, finding = found_by(body, candidate, Rules())
    assert finding.kind == kind
    text = display_program(recording, finding)
    check(text, recording, tmp_path, monkeypatch, lambda: setattr(kernels, name, resolved(operator)))


def unsteady() -> Callable[[Any], Any]:
    calls: list[int] = []

    def function(value: Any) -> Any:
        calls.append(1)
        return real.exp(value) + len(calls) % 2

    return function


def forgetful() -> Callable[[Any], Any]:
    calls: list[int] = []

    def function(value: Any) -> Any:
        calls.append(1)
        return real.exp(value) + (len(calls) > 3)

    return function


def endless(_: object) -> None:
    time.sleep(600)


def ended(_: object) -> None:
    os._exit(3)


def ended_well(_: object) -> None:
    os._exit(0)


def called_often() -> Any:
    value = x()
    for _ in range(5):
        torch.exp(value)
    return torch.exp(value)


#: Body, faulty kernel, what is told of it.
TOLD: dict[str, tuple[Callable[[], Any], Callable[..., Any], dict[str, Any]]] = {
    "differs from itself": (exp(), unsteady(), {"kind": "nondeterminism", "where": "value of exp"}),
    "remembers": (called_often, forgetful(), {"kind": "stateful", "where": "value of exp"}),
    "ends its process": (exp(), ended, {"kind": "crash", "outcome": "crashed", "where": "in torch.exp"}),
    "ends its process as if all were well": (
        exp(), ended_well, {"kind": "crash", "outcome": "crashed", "where": "in torch.exp"},
    ),
    "hangs": (exp(), endless, {"kind": "timeout", "outcome": "timed_out", "where": "in torch.exp"}),
    "ends its process inside a module": (
        lambda: torch.nn.Sequential(torch.nn.Softplus())(torch.nn.functional.elu_(x(requires_grad=False).exp_())), ended,
        {"kind": "crash", "outcome": "crashed", "where": "in torch.exp"},
    ),
    "differs as a graph": (exp(), lambda v: real.exp(v) + real.compiler.is_compiling(), {"kind": "graph", "where": "value of exp, as a graph"}),
    "gradient differs as a graph": (
        exp(), lambda v: real.exp(v) * (1 + real.compiler.is_compiling()), {"kind": "graph", "where": "gradient of x, as a graph"},
    ),
    "no gradient": (
        exp(), lambda v: real.exp(v).detach(), {"kind": "gradient", "where": "gradient of x", "difference": None},
    ),
}  # fmt: skip


def noted(body: Callable[[], Any], candidate: AnyCandidate) -> Recording:
    live = live_of(record(body))
    note = repro_note(candidate, live.program.steps)
    return reported(with_expected(to_recording(live, note), live, TorchBackend()))


@pytest.mark.parametrize(("body", "fault", "told"), TOLD.values(), ids=TOLD)
def test_display_program__of_what_is_no_number__fails_while_it_is_faulty_and_passes_when_it_is_mended(
    body: Any, fault: Any, told: Any, kernels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    vars(kernels)["exp"] = fault
    recording = noted(body, SubstituteCandidate(name="kernels", replace={"torch.exp": "mykernels.exp"}))
    text = display_program(recording, samples.finding(**told)).replace("process.join(60)", "process.join(2)")
    check(text, recording, tmp_path, monkeypatch, lambda: setattr(kernels, "exp", real.exp))


BENT = {"is_bent": True}


@register_backend(name="bent")
def bent_compiler(graph: Any, _: object) -> Callable[..., Any]:
    return lambda *values: tuple(
        one * 2 if BENT["is_bent"] and one.is_floating_point() else one for one in graph(*values)
    )


def stateful_layers() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))(x())


@pytest.mark.parametrize("where", ["value of it", "gradient of x"])
@pytest.mark.parametrize("body", [exp(), two, stateful_layers, drawn])
def test_display_program__of_a_compiler__fails_while_it_is_faulty_and_passes_when_it_is_mended(
    body: Any, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(BENT, "is_bent", True)
    recording = noted(body, CompileCandidate(name="c", options={"backend": "bent"}))
    text = display_program(recording, samples.finding(kind="gradient" if "grad" in where else "value", where=where))
    check(text, recording, tmp_path, monkeypatch, lambda: BENT.update(is_bent=False))


def bent_pass(graph: Any) -> Any:
    return lambda *values: tuple(one * 2 for one in graph(*values))


@pytest.mark.parametrize("body", [exp(), two, stateful_layers])
def test_display_program__of_a_pass__fails_while_it_is_faulty_and_passes_when_it_is_mended(
    body: Any, kernels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    vars(kernels)["rewritten"] = bent_pass
    recording = noted(body, FxCandidate(name="passes", transform="mykernels.rewritten"))
    text = display_program(recording, samples.finding())
    check(text, recording, tmp_path, monkeypatch, lambda: setattr(kernels, "rewritten", lambda graph: graph))


def test_display_program__of_a_device__runs_on_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recording = noted(stateful_layers, TorchCandidate(name="there", device="cpu"))
    there = replace(recording, note=msgspec.structs.replace(recording.note, device="meta"))
    text = display_program(there, samples.finding())
    assert "expected = run(torch.device('cpu'))\nfound = run(torch.device('meta'))" in text
    paste(display_program(recording, samples.finding()), recording, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", [*ROWS, *TOLD])
def test_display_program__typed_into_python__is_whole_at_each_blank_line(name: str, kernels: ModuleType):
    row = {**ROWS, **TOLD}[name]
    body, told = (row[1], {"kind": row[3]}) if name in ROWS else (row[0], row[2])
    operator = row[0] if name in ROWS else "torch.exp"
    candidate = SubstituteCandidate(name="kernels", replace={str(operator): "mykernels.function"})
    text = display_program(noted(body, candidate), samples.finding(**told))
    refused: list[str] = []
    console = InteractiveConsole()
    vars(console).update(showsyntaxerror=lambda *_: refused.append("syntax"), runcode=lambda _: None)
    for line in text.splitlines():
        console.push(line)
    console.push("")
    assert refused == [], text


#: What a stranger may have written where a kernel is named.
STRANGERS = [
    "os.system",
    "builtins.exec",
    "evil.payload",
    "subprocess.call",
    "mykernels.other",
    "x\nimport os",
    "a.b;c",
]


@pytest.mark.parametrize("path", STRANGERS)
@pytest.mark.parametrize("backend", ["substitute", "fx", "torch", "torch.compile"])
def test_evidence_of__a_strangers_program__names_nothing_that_is_not_configured_here(path: str, backend: str):
    recording = noted(two, SubstituteCandidate(name="kernels", replace={"torch.exp": "mykernels.exp"}))
    note = {
        "candidate": "kernels", "backend": backend, "spellings": {path: ["torch.exp"]}, "renames": {"torch.exp": path},
        "transform": path if backend == "fx" else "", "device_module": path if backend == "torch" else "",
    }  # fmt: skip
    plain = json.loads(encode_program(recording))
    program = json.dumps({**plain, "note": note}).encode()
    for named in ((), ("mykernels.exp", "mykernels")):
        permissions = Permissions(names=named)
        text = evidence_of(samples.finding(reference_seen=f"x\nimport {path}"), program, None, permissions).program
        tree = ast.parse(text) if text else ast.Module([], [])
        imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        assert imported <= {"torch"}, text
        code = ast.unparse(tree)
        assert path not in code, text
        assert "evil" not in code, text


def test_evidence_of__a_kernel_that_is_configured_here__is_called(kernels: ModuleType):
    recording = noted(exp(), SubstituteCandidate(name="kernels", replace={"torch.exp": "mykernels.exp"}))
    files = encode_program(recording), encode_tensors(recording)
    called = evidence_of(samples.finding(), *files, Permissions(names=["mykernels.exp"])).program
    assert "found = mykernels.exp(x)\n" in called
    assert called == display_program(recording, samples.finding())
    assert "mykernels.exp(" not in evidence_of(samples.finding(), *files).program


def test_evidence_of__options_of_a_compiler_from_outside__are_not_shown():
    recording = noted(two, CompileCandidate(name="compiled"))
    note = note_of({**plain_note(recording.note), "options": {"options": {"cpp.cxx": ["evil.sh"]}}})
    text = evidence_of(samples.finding(), encode_program(replace(recording, note=note)), None).program
    assert ("evil" in text, "torch.exp" in text) == (False, True)


def test_evidence_of__options_of_a_compiler_that_are_configured_here__are_shown():
    own = {"backend": "inductor", "options": {"max_autotune": True}}
    recording = noted(two, CompileCandidate(name="compiled", options=own))
    for options, is_shown in ((own, True), ({**own, "options": {"cpp.cxx": ["evil.sh"]}}, False)):
        program = encode_program(replace(recording, note=note_of({**plain_note(recording.note), "options": options})))
        text = evidence_of(samples.finding(), program, None, Permissions(options=(own,))).program
        assert ("torch.compile(program, " in text, "evil" in text) == (is_shown, False)


@pytest.mark.parametrize("folder", ["autotests", "evil", "autotests/evil", "/evil", "..", "x']; evil(); ['"])
def test_evidence_of__folders_of_a_strangers_program__are_those_of_the_configuration(folder: str):
    recording = noted(exp(), SubstituteCandidate(name="kernels", replace={"torch.exp": "mykernels.exp"}))
    program = encode_program(replace(recording, note=msgspec.structs.replace(recording.note, folders=(folder,))))
    here = Permissions(names=["mykernels.exp"], folders=["autotests"])
    text = evidence_of(samples.finding(), program, None, here).program
    assert "found = mykernels.exp(x)\n" in text
    assert ("sys.path += ['autotests']" in text, "sys.path" in text) == (folder == "autotests",) * 2


@pytest.mark.parametrize(("limit_s", "waits_s"), [(None, 60), (600.0, 60), (12.5, 13), (0.1, 5), (-1.0, 60)])
def test_display_program__of_a_hang__says_how_long_it_waits(limit_s: float | None, waits_s: int):
    recording = noted(exp(), SubstituteCandidate(name="kernels", replace={"torch.exp": "mykernels.exp"}))
    recording = replace(recording, note=msgspec.structs.replace(recording.note, case_timeout_s=limit_s))
    text = display_program(recording, samples.finding(kind="timeout", outcome="timed_out", where="in torch.exp"))
    assert f"process.join({waits_s})  # waits for at most {waits_s} s\n" in text


@pytest.mark.parametrize("where", ["x\nimport evil\n# after the run", "x\rimport evil\r# after the run"])
def test_evidence_of__text_of_a_report_ends_a_line__is_no_code(where: str):
    recording = noted(two, TorchCandidate(name="kernels"))
    finding = msgspec.structs.replace(samples.finding(), kind="stateful", difference=None, where=where)
    assert "evil" not in evidence_of(finding, encode_program(recording), None).program
