"""Try runtimes of other projects: install each into an environment of its own, run its row, tell what came of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = {
    "openvino": ["openvino==2026.4.1"],
    "executorch": ["executorch==1.5.1"],
    "tvm": ["apache-tvm==0.27.0.post1"],
    "ncnn": ["ncnn==1.0.20261020", "pnnx==20261020"],
    "litert": ["litert-torch==0.10.0"],
}


def install(name: str) -> str:
    """Install a runtime beside torch and ci-autotest; return pip's last error, or nothing."""
    folder = ROOT / ".venvs" / f"runtime-{name}"
    if not (folder / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    given = ["-c", str(ROOT / "constraints.txt"), "torch==2.13.0", *PACKAGES[name], "-e", str(ROOT)]
    done = subprocess.run([*pip, *given], capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    return "" if done.returncode == 0 else (errors or ["pip failed"])[0].removeprefix("ERROR: ")


def try_out(name: str) -> str:
    """Run a runtime's row, and return what came of it in one line."""
    failure = install(name)
    if failure:
        return f"cannot be installed beside torch 2.13: {failure}"
    output = ROOT / "autotest-report" / f"runtime-{name}"
    command = [str(ROOT / ".venvs" / f"runtime-{name}" / "bin/ci-autotest"), "run", "--candidate", name]
    shutil.rmtree(output, ignore_errors=True)
    done = subprocess.run(
        [*command, "--output", str(output), "--budget", "10m"], cwd=HERE, capture_output=True, text=True, check=False
    )
    if not (output / "report.json").exists():
        return f"status {done.returncode}: {''.join((done.stderr or done.stdout).strip().splitlines()[-1:])}"
    report = json.loads((output / "report.json").read_text("utf-8"))
    outcomes = ", ".join(f"{item['test'].rpartition('::')[2]} {item['outcome']}" for item in report["results"])
    findings = "".join(f"\n    {item['headline']}" for item in report["findings"])
    return f"status {done.returncode}: {outcomes}{findings}"


def main(names: list[str]) -> int:
    for name in names or PACKAGES:
        sys.stdout.write(f"{name}: {try_out(name)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
