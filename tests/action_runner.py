"""Run a composite action as GitHub's runner does: real bash, its files, GitHub's own expressions.

Knows what ``action.yml`` uses and refuses the rest, so that nothing in it is silently left out. The
one thing that is not real is the service behind ``actions/upload-artifact``: it copies to a folder.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from tests.npm import installed

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "@actions/expressions"
LIBRARY_VERSION = "0.3.61"
STEP_KEYS = {"name", "id", "if", "shell", "env", "run", "uses", "with", "continue-on-error"}
STEP_TIMEOUT_S = 900
BLOCK = re.compile(
    r"^(?P<name>[^=\n]+?)(?:<<(?P<end>.+)\n(?P<block>(?s:.*?))\n(?P=end)|=(?P<value>.*))$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """What one step did. ``commands`` are the lines of the log that a runner would obey."""

    outcome: str
    status: int = 0
    outputs: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    log: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ActionRecord:
    """What the action did; ``status`` is that of the last step that failed, 0 where none did."""

    status: int
    steps: dict[str, StepRecord]
    outputs: dict[str, str]
    summary: str
    artifacts: Path


def expressions_entry() -> Path:
    """Return the entry file of GitHub's library of expressions, installed once."""
    return installed("expressions", f"{LIBRARY}@{LIBRARY_VERSION}") / LIBRARY / "dist" / "index.js"


@cache
def evaluator() -> subprocess.Popen[str]:
    """Return a process that evaluates expressions, one request a line."""
    argv = ["node", str(ROOT / "tests" / "evaluate_expressions.mjs")]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    atexit.register(process.communicate)
    return process


def parse_file_command(text: str) -> dict[str, str]:
    """Return the pairs of a GITHUB_OUTPUT or GITHUB_ENV file; the last of a name counts."""
    found = BLOCK.finditer(text)
    return {match["name"]: match["value"] if match["end"] is None else match["block"] for match in found}


def obeyed_commands(log: str) -> tuple[str, ...]:
    """Return the workflow commands in ``log`` that no ``::stop-commands::`` silenced."""
    obeyed: list[str] = []
    stopped_by: str | None = None
    for line in (line.lstrip() for line in log.splitlines()):
        if stopped_by is not None:
            stopped_by = None if line.rstrip() == f"::{stopped_by}::" else stopped_by
        elif line.startswith("::stop-commands::"):
            stopped_by = line.removeprefix("::stop-commands::").strip()
        elif line.startswith("::"):
            obeyed.append(line)
    return tuple(obeyed)


@dataclass(kw_only=True)
class ActionRunner:
    """Run the action in ``action`` on ``workspace``; everything it makes lies in ``scratch``.

    Attributes:
        action: Folder of ``action.yml``.
        workspace: Where the caller's repository is checked out.
        scratch: An empty folder, or one to be made.
        github: The ``github`` context, of which ``token`` and ``event`` are two.
        matrix: The ``matrix`` context; ``None`` where the job has none.
        leg: Which leg of the matrix this is, of how many.
        environ: Environment of the job.
        expressions: Entry file of GitHub's library of expressions.
        caches: Folder of the caches of earlier jobs, by their keys.
        steps: What the steps so far did, by id.
        status: Of the last step that failed.
    """

    action: Path
    workspace: Path
    scratch: Path
    github: dict[str, object]
    environ: dict[str, str]
    expressions: Path
    caches: Path | None = None
    matrix: dict[str, object] | None = None
    leg: tuple[int, int] = (0, 1)
    inputs: dict[str, str] = field(default_factory=dict)
    steps: dict[str, StepRecord] = field(default_factory=dict)
    status: int = 0
    summary: str = ""

    def __post_init__(self) -> None:
        self.definition = yaml.safe_load((self.action / "action.yml").read_text("utf-8"))
        for name in ("temp", "artifacts", "files"):
            (self.scratch / name).mkdir(parents=True)

    def run(self, inputs: dict[str, str], done: dict[str, StepRecord] | None = None) -> ActionRecord:
        """Run every step whose condition holds and return what came of it; those that are ``done`` stay as they are."""
        unknown = inputs.keys() - self.definition["inputs"].keys()
        assert not unknown, f"not inputs of the action: {unknown}"
        defaults = {name: str(entry.get("default", "")) for name, entry in self.definition["inputs"].items()}
        self.inputs = self.fill(defaults) | inputs
        self.steps |= done or {}
        for index, step in enumerate(self.definition["runs"]["steps"]):
            self.run_step(index, step)
        outputs = self.fill({name: entry["value"] for name, entry in self.definition["outputs"].items()})
        return ActionRecord(
            status=self.status, steps=self.steps, outputs=outputs, summary=self.summary,
            artifacts=self.scratch / "artifacts",
        )  # fmt: skip

    def evaluate(self, templates: list[str], conditions: list[str]) -> tuple[list[str], list[bool]]:
        """Return the texts of ``templates`` and whether ``conditions`` hold, now."""
        steps = {
            name: {"outputs": step.outputs, "outcome": step.outcome, "conclusion": step.outcome}
            for name, step in self.steps.items()
        }
        request = {
            "entry": str(self.expressions),
            "contexts": {
                "github": self.github,
                "inputs": self.inputs,
                "steps": steps,
                "runner": {"os": "Linux", "temp": str(self.scratch / "temp")},
                "job": {"status": "failure" if self.status else "success"},
                "matrix": self.matrix,
                "strategy": {"job-index": self.leg[0], "job-total": self.leg[1]},
            },
            "status": "failure" if self.status else "success",
            "templates": templates,
            "conditions": conditions,
        }
        process = evaluator()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(request)}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the evaluator of expressions ended with {process.wait()}"
        answer = json.loads(line)
        return answer["templates"], answer["conditions"]

    def fill(self, templates: dict[str, str]) -> dict[str, str]:
        """Return ``templates`` with their expressions replaced by their values."""
        values, _ = self.evaluate([str(value) for value in templates.values()], [])
        return dict(zip(templates, values, strict=True))

    def run_step(self, index: int, step: dict[str, object]) -> None:
        """Run one step, or skip it, and keep its record under its id."""
        assert step.keys() <= STEP_KEYS, f"the runner of the tests does not know {step.keys() - STEP_KEYS}"
        name = str(step.get("id", f"step-{index}"))
        if name in self.steps:
            return
        _, (wanted,) = self.evaluate([], [str(step.get("if", "success()"))])
        if not wanted:
            self.steps[name] = StepRecord(outcome="skipped")
            return
        record = self.use(step) if "uses" in step else self.run_shell(name, step)
        if not step.get("continue-on-error"):
            self.status = record.status or self.status
        self.steps[name] = record

    def use(self, step: dict[str, object]) -> StepRecord:
        """Stand in for an action of GitHub's."""
        name = str(step["uses"]).partition("@")[0]
        return {
            "actions/upload-artifact": self.upload,
            "actions/cache/restore": self.restore,
            "actions/cache/save": self.save,
        }[name](step)

    def restore(self, step: dict[str, object]) -> StepRecord:
        """Stand in for ``actions/cache/restore``: an exact key is a hit."""
        given = self.fill(dict(step["with"]))
        if self.caches is None or not (self.caches / given["key"]).is_dir():
            return StepRecord(outcome="success", outputs={"cache-hit": ""})
        shutil.copytree(self.caches / given["key"], given["path"])
        return StepRecord(outcome="success", outputs={"cache-hit": "true"})

    def save(self, step: dict[str, object]) -> StepRecord:
        """Stand in for ``actions/cache/save``: a key is written once."""
        given = self.fill(dict(step["with"]))
        if self.caches is None or not Path(given["path"]).is_dir():
            return StepRecord(outcome="failure", status=1, log=f"cannot save {given['path']}")
        shutil.copytree(given["path"], self.caches / given["key"])
        return StepRecord(outcome="success")

    def upload(self, step: dict[str, object]) -> StepRecord:
        """Stand in for ``actions/upload-artifact``: hidden files stay behind, names are unique."""
        given = self.fill(dict(step["with"]))
        source = Path(given["path"])
        target = self.scratch / "artifacts" / given["name"]
        if not source.is_dir() or not any(source.iterdir()) or target.exists():
            return StepRecord(outcome="failure", status=1, log=f"cannot upload {source}")
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*"))
        return StepRecord(
            outcome="success",
            outputs={"artifact-url": f"https://github.test/artifacts/{given['name']}"},
        )

    def run_shell(self, name: str, step: dict[str, object]) -> StepRecord:
        """Run a ``run:`` step with bash and read back the files it wrote to."""
        shell = str(step["shell"]).split()
        files = {
            variable: self.scratch / "files" / f"{name}-{variable}" for variable in ("OUTPUT", "ENV", "STEP_SUMMARY")
        }
        script = self.scratch / "files" / f"{name}.sh"
        script.write_text(str(step["run"]), "utf-8")
        for file in files.values():
            file.touch()
        environ = self.environ | {
            **self.fill(dict(step.get("env", {}))),
            **{f"GITHUB_{variable}": str(file) for variable, file in files.items()},
            "GITHUB_ACTION_PATH": str(self.action),
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.scratch / "temp"),
        }
        done = subprocess.run(
            [word.replace("{0}", str(script)) for word in shell], cwd=self.workspace,
            env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=STEP_TIMEOUT_S,
        )  # fmt: skip
        self.environ |= parse_file_command(files["ENV"].read_text("utf-8"))
        self.summary += files["STEP_SUMMARY"].read_text("utf-8")
        return StepRecord(
            outcome="failure" if done.returncode else "success",
            status=done.returncode,
            outputs=parse_file_command(files["OUTPUT"].read_text("utf-8")),
            environ=environ,
            log=done.stdout,
            commands=obeyed_commands(done.stdout),
        )


def job_environ() -> dict[str, str]:
    """Return this process's environment as a job would have it: nothing of another runner's."""
    private = ("GITHUB_", "RUNNER_", "INPUT_", "ACTIONS_", "PYTEST_", "COVERAGE_", "COV_CORE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(private)}
