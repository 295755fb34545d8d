"""A service of `ci-autotest serve` for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import requests


class RunningService:
    """A service over HTTP."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "HELD": "unknown"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ci_autotest", "serve", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=self.environ,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        self.token = self.process.stdout.readline().split()[-1]

    def post(self, path: str, document: Any, token: str | None = None) -> tuple[int, Any]:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        head = {"Authorization": f"Bearer {self.token if token is None else token}"}
        answer = requests.post(self.url + path, data, headers=head, timeout=300)
        return answer.status_code, answer.json()

    def children(self) -> list[int]:
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for file in lists for pid in file.read_text().split()]

    def end(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=30)
        return self.process.returncode
