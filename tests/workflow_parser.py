"""GitHub's own parser on workflows and actions: ``python -m tests.workflow_parser FILE...`` ends with 1 on an error."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.npm import installed

PACKAGES = ("@actions/workflow-parser@0.3.61", "esbuild@0.28.2")
SOURCE = Path(__file__).with_name("parse_workflows.mjs")


def errors_of(files: list[str]) -> dict[str, list[str]]:
    """Return what GitHub would refuse, by file; an action is told from a workflow by its name."""
    modules = installed("workflow-parser", *PACKAGES)
    source, bundle = modules.parent / SOURCE.name, modules.parent / "parse_workflows.cjs"
    shutil.copy2(SOURCE, source)
    built = ["--bundle", "--platform=node", "--format=cjs", f"--outfile={bundle}", "--log-level=warning"]
    subprocess.run([modules / ".bin" / "esbuild", source, *built], check=True, timeout=60)
    done = subprocess.run(["node", bundle, *files], check=True, capture_output=True, text=True, timeout=60)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def main() -> int:
    """Print every error, one a line."""
    found = errors_of(sys.argv[1:])
    sys.stdout.writelines(f"{error}\n" for errors in found.values() for error in errors)
    sys.stdout.write(f"GitHub's parser: {len(found)} files, {sum(map(len, found.values()))} errors\n")
    return 1 if any(found.values()) or len(found) != len(sys.argv[1:]) else 0


if __name__ == "__main__":
    sys.exit(main())
