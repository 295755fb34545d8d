"""The program that is shown for a framework fails in its interpreter while the framework is wrong, and passes when mended."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.recordings import to_recording, with_expected
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.backend import RemoteBackend
from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.mapping.table import load_table
from ci_autotest.backends.framework.mapping.translation import Translator
from ci_autotest.commands.output_writer import permissions_in
from ci_autotest.program.note import ModuleNote, Note
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.report.evidence import evidence_of
from ci_autotest.report.finding_program import display_program
from tests import report_samples as samples
from tests.candidates import needs, path_of
from tests.engine import judged, record
from tests.pasting import reported, write_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ci_autotest.program.recording import Recording

pytestmark = pytest.mark.heavy
FRAMEWORKS = ("oneflow", "paddle", "jax", "mindspore")


def x(*dims: int, **how: Any) -> Any:
    return random_tensor(dims=dims, **how)


def several() -> Any:
    y = torch.exp(x(2, 3))
    return torch.sin(y), y.sum()


def rejected() -> Any:
    with pytest.raises(RuntimeError):
        torch.matmul(x(2, 3), x(2, 3))
    return torch.exp(x(2))


#: Body, and what is told of it; `torch.exp` is answered by the framework's `sinh`.
ROWS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "value": (lambda: torch.exp(x(2, 3)), {"where": "value of exp"}),
    "value of large tensors": (lambda: torch.exp(x(20, 30)), {"where": "value of exp"}),
    "value in bfloat16": (lambda: torch.exp(x(2, 3, dtype=torch.bfloat16)), {"where": "value of exp"}),
    "value in complex numbers": (lambda: torch.exp(x(2, dtype=complex, low=-1, high=1)), {"where": "value of exp"}),
    "value of a matrix on its side": (lambda: torch.exp(x(2, 3).t()), {"where": "value of exp"}),
    "several": (several, {"where": "value of somewhere"}),
    "gradient": (lambda: torch.exp(x(2, 3)), {"kind": "gradient", "where": "gradient of x"}),
    "gradient of several": (several, {"kind": "gradient", "where": "gradient of x"}),
}  # fmt: skip
#: The others in ``make matrix``: each starts two processes that import a framework.
ALWAYS = ("value", "value in bfloat16", "several", "gradient")


@pytest.fixture(scope="module", params=[pytest.param(name, marks=needs(name)) for name in FRAMEWORKS])
def framework(request: pytest.FixtureRequest) -> Iterator[tuple[str, RemoteBackend, tuple[str, str]]]:
    name = request.param
    table = load_table(name)
    right, wrong = (
        table.rows[f"torch.{each}"].to if f"torch.{each}" in table.rows else f"{name}.{each}"
        for each in ("exp", "sinh")
    )
    rows = table.extended({"torch.exp": {"to": wrong, "positional": ["input"], "reason": "wrong"}}, "a test")
    backend = RemoteBackend(Interpreter(name, str(path_of(name)), name, "cpu", ()), Translator(rows))
    yield name, backend, (wrong, right)
    backend.close()


def recorded(body: Callable[[], Any], backend: RemoteBackend) -> tuple[Recording, str]:
    attempt = record(body)
    outcome = judged(attempt, backend).verdict.outcome
    live = live_of(attempt)
    note = Note(side=ModuleNote(), torch="2.13.0", host=backend.repro_note(live.program, live.sources))
    return with_expected(to_recording(live, note), live, TorchBackend()), outcome


def run(name: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(path_of(name)), "-c", text], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("row", [row if row in ALWAYS else pytest.param(row, marks=pytest.mark.matrix) for row in ROWS])
def test_display_program__of_a_framework__fails_while_it_is_wrong_and_passes_when_it_is_mended(
    row: str, framework: Any, tmp_path: Path
):
    (body, told), (name, backend, (wrong, right)) = ROWS[row], framework
    recording, outcome = recorded(body, backend)
    if outcome == "unsupported":
        pytest.skip(f"{name} has no such program")
    recording = reported(recording)
    text = display_program(recording, samples.finding(**told))
    write_tensors(text, recording, tmp_path)
    assert f"import {name}\n" in text
    done = run(name, text, tmp_path)
    assert "AssertionError" in done.stderr, text + done.stderr
    mended = run(name, text.replace(f"{wrong}(", f"{right}("), tmp_path)
    assert mended.returncode == 0, text + mended.stderr


def test_evidence_of__a_strangers_program_of_a_framework__is_shown_where_the_table_names_its_functions(framework: Any):
    _, backend, (wrong, _) = framework
    recording, _ = recorded(lambda: torch.exp(x(2, 3)), backend)
    tensors = encode_tensors(recording)
    shown = evidence_of(samples.finding(where="value of exp"), encode_program(recording), tensors, permissions_in(None))
    own = display_program(recording, samples.finding(where="value of exp"))
    assert shown.program == own
    assert f"{wrong.removeprefix('adapters.')}(" in own


@pytest.mark.parametrize("target", ["load", "utils.run_check", "static.load_program_state"])
def test_evidence_of__a_strangers_program_calls_what_no_table_names__is_torchs_alone(target: str, framework: Any):
    name, backend, (wrong, _) = framework
    recording, _ = recorded(lambda: torch.exp(x(2, 3)), backend)
    tensors, permissions = encode_tensors(recording), permissions_in(None)
    for program in (f"{name}.{target}", "adapters.exec"):
        given = encode_program(recording).replace(wrong.encode(), program.encode())
        shown = evidence_of(samples.finding(where="value of exp"), given, tensors, permissions).program
        assert "import torch\n" in shown
        assert [text for text in (f"import {name}", target, "exec(") if text in shown] == []
