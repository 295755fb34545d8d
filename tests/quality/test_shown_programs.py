"""Every program that is shown for a finding is one that runs: in a report, on a page, in a repro of each kind."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch as plain

from ci_autotest import random_device, random_tensor, torch
from ci_autotest.alignment.recordings import to_recording, with_expected
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.mapping.table import MappingTable
from ci_autotest.backends.framework.mapping.translation import translated
from ci_autotest.backends.repro_notes import repro_note
from ci_autotest.kinds import CompileCandidate, TorchCandidate
from ci_autotest.program.ir import PLACEHOLDER, TensorSpec
from ci_autotest.program.json_values import plain_program
from ci_autotest.program.note import HostNote, ModuleNote
from ci_autotest.program.repro.plain_program import is_plain_program
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.report.evidence import evidence_of
from ci_autotest.report.finding_files import repro_script
from ci_autotest.report.finding_program import display_program
from ci_autotest.values.case import ATTEMPTS_PER_CASE
from tests import report_samples as samples
from tests.engine import record
from tests.pasting import paste, reported
from tests.quality import bodies

if TYPE_CHECKING:
    from pathlib import Path

    from ci_autotest.program.recording import Recording


def weight_that_was_moved():
    weight = random_tensor(1, 3, requires_grad=False).to("cpu")
    return torch.nn.BCEWithLogitsLoss(pos_weight=weight)(random_tensor(2, 4, 3), torch.ones(4, 3))


def weight_that_was_computed():
    weight = random_tensor(1, 3, requires_grad=False).abs().to(random_device()) + 1
    module = torch.nn.CrossEntropyLoss(weight=weight)
    module.train()
    return module(random_tensor(2, 4, 3), torch.tensor([0, 1, 2, 0]))


def weight_that_was_expanded():
    weight = random_tensor(1, 1, requires_grad=False).expand(3)
    return torch.nn.BCEWithLogitsLoss(pos_weight=weight)(random_tensor(2, 4, 3), torch.ones(4, 3))


def moved_to_a_device():
    device = random_device()
    module = torch.nn.Linear(3, 2)
    module.to(device)
    return module(random_tensor(2, 4, 3).to(device)).to(device)


def made_on_a_device():
    return random_tensor(2, 2, 3) + torch.zeros(2, 3, device=random_device())


def parts_of_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    model[1][0].eval()
    return model[1](model[0](random_tensor(2, 2, 3)))


def device_in_autocast():
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        return torch.mm(random_tensor(2, 3, 4).to(random_device()), random_tensor(2, 4, 2)).float()


def many_elements():
    return torch.exp(random_tensor(2, 20, 30)), random_tensor(2, 20, 20, dtype=plain.bfloat16).sum()


def many_complex_elements():
    return torch.exp(random_tensor(2, 20, 30, dtype=complex, low=-1, high=1)).abs()


def hooks_that_are_removed():
    x = random_tensor(1, 3)
    y = x * 2
    handle = y.register_hook(lambda gradient: gradient * 3)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
    handle.remove()
    return first, torch.autograd.grad(y.sum(), x)[0]


def hook_that_keeps():
    x, kept = random_tensor(1, 3), []
    y = x.sin()
    y.register_hook(lambda gradient: kept.append(gradient * 2))
    y.sum().backward()
    return kept[0] + 1


def alike_in_a_row():
    x = random_tensor(1, 3)
    for _ in range(5):
        torch.exp(x)
    return torch.exp(x)


def assigned_setting():
    module = torch.nn.ELU()
    module.alpha = 0.5
    return module(random_tensor(1, 3))


OWN = {
    body.__name__: body
    for body in (
        weight_that_was_expanded, weight_that_was_moved, weight_that_was_computed, moved_to_a_device, made_on_a_device, parts_of_a_module,
        device_in_autocast, many_elements, many_complex_elements, hooks_that_are_removed, hook_that_keeps,
        alike_in_a_row, assigned_setting,
    )
}  # fmt: skip
BODIES = {**bodies.BODIES, **OWN}
#: What another interpreter is not asked.
NOT_HOSTED = {
    "hook_on_a_gradient", "regularized_by_dropout", "initialized_layers", "hooks_that_are_removed", "hook_that_keeps",
    "training_loop",
}  # fmt: skip
KINDS = ("value", "gradient")


@lru_cache
def recorded(name: str, profile: str | None = None) -> Recording:
    for number in range(ATTEMPTS_PER_CASE):
        attempt = record(BODIES[name], number=number, test=name, profile=profile)
        if attempt.refused is None:
            live = live_of(attempt)
            note = repro_note(TorchCandidate(name="copy"), live.program.steps)
            return reported(with_expected(to_recording(live, note), live, TorchBackend()))
    pytest.fail(f"{name}: the reference rejects every attempt: {attempt.trace.failure}")


def finding(recording: Recording, kind: str) -> Any:
    """Return what is told of a program, about the first of its leaves where that has a gradient."""
    leaves = [
        step.name
        for step in recording.program.steps
        if step.op == PLACEHOLDER and isinstance(step.args[0], TensorSpec) and step.args[0].requires_grad
    ]
    where = f"gradient of {leaves[0]}" if kind == "gradient" and leaves else "value of it"
    return samples.finding(kind=kind, where=where, operator="torch.exp", target="torch.exp")


def execute(text: str, folder: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a program as a reader would; say whether it leaves what was found, or tensors."""
    scope = paste(text, recording, folder, monkeypatch)
    return "found" in scope or any(isinstance(value, plain.Tensor) for value in scope.values())


def status(text: str, recording: Recording, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a script in this process; return its exit status and what it printed."""
    (folder / "tensors.safetensors").write_bytes(encode_tensors(recording))
    hook, path = sys.excepthook, list(sys.path)
    scope = {"__name__": "repro", "__file__": str(folder / "repro.py"), "__doc__": "a title"}
    end = text.rpartition("    status = ")[2].partition("\n")[0]
    try:
        exec(compile(text, "repro.py", "exec"), scope)  # noqa: S102 - what is under test
        return eval(end, scope), capsys.readouterr().out  # noqa: S307 - the expression of the script's status
    finally:
        sys.excepthook, sys.path[:] = hook, path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BODIES)
def test_display_program__is_executed(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recording = recorded(name)
    text = display_program(recording, finding(recording, kind))
    assert execute(text, tmp_path, recording, monkeypatch)
    assert is_plain_program(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["linear_regression", "causal_attention", "weight_that_was_moved", "moved_to_a_device"]
)
def test_display_program__of_a_compiler__is_executed(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plain_one = recorded(name)
    note = repro_note(CompileCandidate(name="c", options={"backend": "eager"}), plain_one.program.steps)
    recording = replace(plain_one, note=note)
    assert execute(display_program(recording, finding(recording, kind)), tmp_path, recording, monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BODIES)
def test_evidence_of__its_program_is_executed(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recording = recorded(name)
    files = encode_program(recording), encode_tensors(recording)
    for tensors in (files[1], None):
        found = evidence_of(finding(recording, kind), files[0], tensors)
        assert execute(found.program, tmp_path, recording, monkeypatch)
    unnamed = replace(recording, note=msgspec.structs.replace(recording.note, side=ModuleNote()))
    found = evidence_of(finding(recording, kind), encode_program(unnamed), files[1])
    assert execute(found.program, tmp_path, recording, monkeypatch)


@pytest.mark.parametrize("profile", ["ordinary", "non_contiguous"])
@pytest.mark.parametrize("name", BODIES)
def test_repro__a_right_candidate__ends_with_0(
    name: str, profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    recording = recorded(name, profile)
    text = repro_script(recording, finding(recording, "value"), tmp_path, (tmp_path,), 60.0)
    found, said = status(text, recording, tmp_path, capsys)
    assert (found, "the reference recomputed agrees" in said) == (0, True), said


def hosted(recording: Recording) -> Recording:
    """Return a recording as that of a candidate in an interpreter of its own, which is torch itself."""
    program = translated(recording.program, MappingTable("torch", "", "torch", like_torch=True, rows={}))
    host = {
        "module": "torch", "version": "2", "python": sys.executable, "on": "3", "graph": False,
        "program": plain_program(program.program), "moved": list(program.moved),
        "parameters": [[index, each, place] for (index, each), place in program.parameters.items()],
    }  # fmt: skip
    return replace(recording, note=msgspec.structs.replace(recording.note, host=HostNote(**host)))


@pytest.mark.parametrize("profile", ["ordinary", "non_contiguous"])
@pytest.mark.parametrize("name", sorted(set(BODIES) - NOT_HOSTED))
def test_host_repro__a_right_candidate__ends_with_0(
    name: str, profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    recording = recorded(name, profile)
    monkeypatch.setitem(os.environ, "REPRO_IN_PLACE", "1")
    text = repro_script(hosted(recording), finding(recording, "value"), tmp_path, (tmp_path,), 60.0)
    found, said = status(text, recording, tmp_path, capsys)
    assert found == 0, said


@pytest.mark.parametrize(
    ("spelled", "expected"), [("torch.nn.functional.no_such_name(", 1), ("no_such_name(", 2)], ids=["its own", "ours"]
)
def test_host_repro__name_is_not_there__is_a_finding_where_the_candidate_lacks_it(
    spelled: str, expected: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    recording = recorded("many_elements")
    monkeypatch.setitem(os.environ, "REPRO_IN_PLACE", "1")
    text = repro_script(hosted(recording), finding(recording, "error"), tmp_path, (tmp_path,), 60.0)
    found, said = status(text.replace("torch.exp(", spelled, 1), recording, tmp_path, capsys)
    assert found == expected, said
