"""The examples of kernels in Triton, Numba and C++ run as a user runs them, and show their planted faults alone."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.projects import ALONE, GREATEST_S, environment

ROOT = Path(__file__).resolve().parents[2]
#: The example, what it needs, and the planted fault of each candidate.
EXAMPLES = {
    "triton_kernels": (("triton",), {("triton", "torch.nn.functional.softmax")}, {"layer_norm", "product", "rotary_embedding"}),
    "compiled": (
        ("numba", "ninja"), {("numba", "torch.amax"), ("cpp", "torch.nn.functional.hardtanh")}, {"cumsum", "silu"},
    ),
}  # fmt: skip


def lacking(needed):
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    return missing or [name for name in ("g++",) if "ninja" in needed and shutil.which(name) is None]


@pytest.mark.heavy
@pytest.mark.parametrize("name", EXAMPLES)
def test_example__kernels_of_a_compiler__have_their_planted_faults_and_no_other(name, tmp_path):
    needed, faults, right = EXAMPLES[name]
    if missing := lacking(needed):
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder, output = ROOT / "examples" / name, tmp_path / "report"
    words = ["run", "--config", str(folder / "autotest.yml"), "--workers", "1", "--output", str(output)]
    # A build that was killed leaves a lock in the user's own folder, for which torch waits for ever.
    environ = environment({"TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")})
    done = subprocess.run(
        [sys.executable, "-m", "ci_autotest", *words],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=4 * GREATEST_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((output / "report.json").read_text("utf-8"))
    assert {(item["candidate"], item["operator"]) for item in report["findings"]} == faults, done.stdout
    assert all(item["repro_verified"] for item in report["findings"]), done.stdout
    aligned = {item["test"].rpartition("::")[2] for item in report["results"] if item["outcome"] == "aligned"}
    assert right <= aligned, done.stdout
    for finding in report["findings"]:
        script = [sys.executable, "-I", "-c", ALONE, str(output / finding["repro"])]
        alone = subprocess.run(script, cwd="/", env=environ, timeout=GREATEST_S, check=False, capture_output=True)
        assert alone.returncode == 1
