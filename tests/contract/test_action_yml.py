"""``action.yml`` and the workflows declare what the program takes, writes and may do."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomllib
import yaml
from msgspec import inspect

from action import container, foreign, inputs, options, outputs, runner
from ci_autotest.cli import cli
from ci_autotest.commands.request_parsing import request_of
from ci_autotest.config import Config, decode
from ci_autotest.errors import ConfigError
from ci_autotest.version import VERSION
from tests.action_runner import expressions_entry

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
BY_ID = {step["id"]: step for step in STEPS if "id" in step}
WORKFLOWS = sorted([*(ROOT / "workflows").glob("*.yml"), *(ROOT / ".github" / "workflows").glob("*.yml")])
PAGE = (ROOT / "docs/reference/action.md").read_text("utf-8")
#: Keys of the configuration, and the options of `ci-autotest run` by name.
FIELDS = {field.encode_name.replace("_", "-"): field for field in inspect.type_info(Config).fields}
OF_COMMAND = {
    option.removeprefix("--"): parameter
    for parameter in cli.commands["run"].params
    for option in parameter.opts
    if option.startswith("--") and parameter.param_type_name == "option"
}
#: Inputs that the command line does not have.
OF_ACTION = {
    "options", "mode", "runtime", "python", "install", "image", "container-options", "run-id", "comment",
    "artifact-name", "github-token",
}  # fmt: skip
OUTPUTS = {
    "conclusion",
    "misaligned",
    "findings",
    "report-json",
    "artifact-dir",
    "artifact-url",
    "comment-url",
}
NAMES = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.relative_to(ROOT).as_posix())


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


def used(steps: list[dict[str, Any]]) -> list[str]:
    return [step["uses"] for step in steps if "uses" in step]


def sample(kind: inspect.Type, default: object = None) -> Any:
    """Return plain data of a type of the configuration that is not its default."""
    if isinstance(kind, inspect.UnionType):
        return sample(next(part for part in kind.types if not isinstance(part, inspect.NoneType)), default)
    if isinstance(kind, inspect.LiteralType):
        return next(value for value in reversed(kind.values) if value != default)
    if isinstance(kind, inspect.VarTupleType):
        return [sample(kind.item_type)]
    if isinstance(kind, inspect.StructType):
        required = [field for field in kind.fields if field.required] or kind.fields[-1:]
        return {field.encode_name: sample(field.type, field.default) for field in required}
    known = {inspect.IntType: 7, inspect.FloatType: 1.5, inspect.StrType: "7m", inspect.BoolType: default is False}
    return known[type(kind)]


OF_SECTIONS = {"opinfo": {"dtypes": ["float64"]}, "candidates": [{"name": "7m", "backend": "torch"}]}


def accepted(name: str, field: inspect.Field) -> Any:
    """Return a sample that the configuration takes: of texts, one of a few forms."""
    row = {"operator": "torch.mm", "factor": 3.0, "reason": "accumulates in half"}
    forms = (
        [OF_SECTIONS[name]] if name in OF_SECTIONS else [sample(field.type, field.default), "512MiB", "other", [row]]
    )
    for plain in forms:
        with contextlib.suppress(ConfigError):
            decode({field.encode_name: plain}, "sample")
            return plain
    message = f"no sample fits '{name}': add a form to this function"
    raise AssertionError(message)


def text_of(value: Any) -> str:
    """Return a value as a workflow's author writes it into an input."""
    if isinstance(value, list) and isinstance(value[0], str):
        return "\n".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def test_inputs__of_the_action__are_the_usual_options_and_its_own():
    assert ACTION["inputs"].keys() == set(options.INPUTS) | OF_ACTION
    assert len(ACTION["inputs"]) <= 22
    assert set(inputs.SINGLE) == set(options.INPUTS) - {"paths", "candidate", "output"}


def test_options__of_run__are_inputs_lines_or_refused():
    lines = set(options.OPTIONS) - set(options.OF_ACTION)
    assert OF_COMMAND.keys() == (set(options.INPUTS) - {"paths"}) | lines | set(options.OF_TERMINAL)
    reached = {name for name in FIELDS if name in OF_COMMAND or name == "paths"}
    assert FIELDS.keys() - reached == set(options.SETTINGS)
    assert {name for name in lines if OF_COMMAND[name].is_flag} == {options.FLAG}
    assert [name for name in lines if f"`--{name}" not in ACTION["inputs"]["options"]["description"]] == []


def test_options__with_few_values__take_those_of_the_command_line():
    few = {name: tuple(option.type.choices) for name, option in OF_COMMAND.items() if hasattr(option.type, "choices")}
    assert {name: values for name, values in options.CHOICES.items() if name not in options.OF_ACTION} == few


@pytest.mark.parametrize("name", sorted(ACTION["inputs"]))
def test_input__declared__is_described_and_forwarded(name: str):
    assert ACTION["inputs"][name].keys() == {"description", "default"}
    forwarded = "\n".join(
        str(value) for step in STEPS for key in ("env", "with") for value in step.get(key, {}).values()
    )
    assert f"${{{{ inputs.{name} }}}}" in forwarded


def test_inputs__forwarded__reach_one_step_and_the_token_another():
    found = [
        (step["id"], key, value) for step in STEPS for key, value in step.get("env", {}).items() if "inputs." in value
    ]
    names = [name for name in ACTION["inputs"] if name != "github-token"]
    expected = [("plan", inputs.variable(name), f"${{{{ inputs.{name} }}}}") for name in names]
    assert found == [*expected, ("publish", "GITHUB_TOKEN", "${{ inputs.github-token }}")]
    text = (ROOT / "action.yml").read_text("utf-8")
    assert len(re.findall(r"\binputs\.", text)) == len(found)


def test_steps__after_the_plan__have_its_arguments():
    given = {step["id"]: step["env"].get("STEP_ARGUMENTS") for step in STEPS if "run" in step and "id" in step}
    assert given == {
        "plan": None,
        **{name: f"${{{{ steps.plan.outputs.{output} }}}}" for name, output in (
            ("prepare", "install"), ("install", "install"), ("run", "run"), ("publish", "comment"),
        )},
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_input__key_of_the_configuration__reaches_it(name: str, tmp_path: Path):
    field = FIELDS[name]
    plain = accepted(name, field)
    if name in options.INPUTS:
        environ = {inputs.variable(name): text_of(plain)}
    else:
        option = f"set={name}" if name in options.SETTINGS else name
        environ = {"INPUT_OPTIONS": f"--{option}={text_of(plain)}"}
    argv = inputs.cli_argv(environ, inputs.given_options(environ))
    given = cli.commands["run"].make_context("run", argv[1:]).params
    request = request_of(given.pop("paths"), given, tmp_path, needs_candidate=False)
    got = request.paths if name == "paths" else getattr(request.config, field.name)
    expected = msgspec.convert({field.encode_name: plain}, Config)
    assert got == getattr(expected, field.name) != getattr(Config(), field.name)


@pytest.mark.parametrize("name", sorted(OF_COMMAND.keys() - FIELDS.keys() - set(options.OF_TERMINAL) - {"set"}))
def test_input__option_of_run__reaches_the_argument_vector(name: str):
    value = options.CHOICES.get(name, ("sentinel",))[0]
    line = f"--{name}" if name == options.FLAG else f"--{name}={value}"
    environ = {inputs.variable(name): value} if name in options.INPUTS else {"INPUT_OPTIONS": line}
    assert inputs.cli_argv(environ, inputs.given_options(environ)).count(line) == 1


def test_inputs__left_alone__ask_for_what_the_program_does_by_itself():
    defaults = {name: entry["default"] for name, entry in ACTION["inputs"].items() if entry["default"]}
    assert defaults == {
        "output": inputs.DEFAULT_OUTPUT, "mode": inputs.MODES[0], "python": "python3", "image": f"ghcr.io/org/ci-autotest:v{VERSION}",
        "github-token": "${{ github.token }}", "run-id": "${{ github.event.workflow_run.id || github.run_id }}",
    }  # fmt: skip


def test_outputs__declared__are_written_by_the_step_that_they_name():
    written = {
        "plan": {
            "task",
            "python",
            "image",
            "cache-key",
            "cache-folder",
            "install",
            "installs",
            "run",
            "artifact",
            "comment",
        },
        "cache": {"cache-hit"},  # of actions/cache
        "prepare": {"python", "packages", "cached"},
        "run": set(outputs.step_outputs(0, None, None)),
        "upload": {"artifact-url", "artifact-digest"},  # of actions/upload-artifact
        "publish": {"comment-url"},
    }
    assert ACTION["outputs"].keys() == OUTPUTS
    text = (ROOT / "action.yml").read_text("utf-8")
    named = set(re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", text))
    assert named == {(step, name) for step, names in written.items() for name in names}
    for name, entry in ACTION["outputs"].items():
        if name == "conclusion":  # never empty: the next test
            continue
        assert re.fullmatch(rf"\$\{{\{{ steps\.[\w-]+\.outputs\.{name} \}}\}}", entry["value"]), name


#: Outcomes of the steps plan, prepare, install, run and publish, what `run` and `plan` wrote, and the word for it.
ENDS = [
    ("success success skipped success skipped", "failure", "run", "failure"),
    ("failure skipped skipped skipped skipped", "", "", "usage"),
    ("success failure skipped skipped skipped", "", "run", "usage"),
    ("cancelled skipped skipped skipped skipped", "", "", "interrupted"),
    ("success cancelled skipped skipped skipped", "", "run", "interrupted"),
    ("skipped skipped skipped skipped skipped", "", "", "interrupted"),
    ("success success failure skipped skipped", "", "run", "usage"),
    ("success success cancelled skipped skipped", "", "run", "interrupted"),
    ("success success success cancelled skipped", "", "run", "interrupted"),
    ("success success skipped cancelled skipped", "interrupted", "run", "interrupted"),
    ("success success success failure skipped", "", "run", "error"),
    ("success success skipped success success", "success", "merge", "success"),
    ("success success skipped skipped success", "", "publish", "success"),
    ("success success skipped skipped failure", "", "publish", "error"),
    ("success success skipped skipped cancelled", "", "publish", "interrupted"),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("outcomes", "said", "task", "word"), ENDS)
def test_conclusion__however_it_ends__is_never_empty(outcomes: str, said: str, task: str, word: str):
    steps: dict[str, Any] = {
        name: {"outcome": outcome, "outputs": {}}
        for name, outcome in zip(("plan", "prepare", "install", "run", "publish"), outcomes.split(), strict=True)
    }
    steps["run"]["outputs"] = {"conclusion": said} if said else {}
    steps["plan"]["outputs"] = {"task": task} if task else {}
    request = {
        "entry": str(expressions_entry()), "contexts": {"steps": steps}, "status": "success", "conditions": [],
        "templates": [ACTION["outputs"]["conclusion"]["value"]],
    }  # fmt: skip
    argv = ["node", str(ROOT / "tests" / "evaluate_expressions.mjs")]
    done = subprocess.run(argv, input=json.dumps(request), capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["templates"] == [word]


@pytest.mark.parametrize("name", ["autotest", "autotest-gpu", "autotest-sharded"])
def test_workflow__that_tests_pull_requests__also_leaves_what_they_are_compared_with(name: str):
    # YAML 1.1 reads `on` as true.
    triggers = yaml.safe_load((ROOT / "workflows" / f"{name}.yml").read_text("utf-8"))[True]
    assert triggers == {"pull_request": None, "push": {"branches": ["main", "master"]}, "merge_group": None}


def test_steps__run__hold_no_expression():
    scripts = [step["run"] for step in STEPS if "run" in step]
    scripts += [
        step["run"] for path in WORKFLOWS for job in jobs(path).values() for step in job["steps"] if "run" in step
    ]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


def test_steps__of_python__are_isolated():
    started = [line for step in STEPS for line in step.get("run", "").splitlines() if "_PATH/action" in line]
    assert len(started) == 5
    assert [line for line in started if re.search(r"exec \"\$\w+\" -I ", line) is None] == []


def test_steps__with_the_token__are_the_one_that_comments_and_is_in_no_job_with_tests():
    holders = [step.get("id") for step in STEPS if "token" in str(step.get("env", {})) + str(step.get("with", {}))]
    assert holders == ["publish"]
    assert "steps.plan.outputs.comment != ''" in BY_ID["publish"]["if"]  # which a job with tests does not have


def test_run_step__has_the_head_of_the_pull_request_from_github():
    assert BY_ID["run"]["env"]["AUTOTEST_HEAD_SHA"] == "${{ github.event.pull_request.head.sha }}"


def test_steps__after_a_failure__still_upload_comment_and_end():
    conditions = [str(step.get("if", "")) for step in STEPS]
    regardless = [bool(re.search(r"always\(\)|!cancelled\(\)", text)) for text in conditions]
    assert regardless == [False] * 6 + [True, True, True]


def test_steps__cache__is_saved_before_code_of_the_checkout_runs():
    order = [step.get("id") or step.get("uses", "end").partition("@")[0] for step in STEPS]
    assert order == [
        "plan", "cache", "prepare", "actions/cache/save", "install", "run", "upload", "publish", "end",
    ]  # fmt: skip
    assert [step["continue-on-error"] for step in STEPS if "cache" in step.get("uses", "")] == [True, True]


def test_uses__everywhere__is_pinned_to_one_hash():
    found = used(STEPS) + [uses for path in WORKFLOWS for job in jobs(path).values() for uses in used(job["steps"])]
    pins: dict[str, set[str]] = {}
    for uses in found:
        name, _, pin = uses.partition("@")
        pins.setdefault(name, set()).add(pin)
    assert pins.pop("./") == {""}
    assert pins.pop("org/ci-autotest") == {"v1"}
    assert {name: len(values) for name, values in pins.items()} == dict.fromkeys(pins, 1)
    assert [pin for values in pins.values() for pin in values if not re.fullmatch(r"[0-9a-f]{40}", pin)] == []


#: Permissions beyond reading the repository, by workflow and job, each with what it is for.
MORE = {
    ("workflows/autotest-report.yml", "report"): {"actions": "read", "pull-requests": "write"},
    ("workflows/autotest-sharded.yml", "merge"): {"actions": "read"},
    ("workflows/autotest-nightly.yml", "issues"): {"issues": "write"},
    ("workflows/autotest-pages.yml", "publish"): {"contents": "write"},
    (".github/workflows/release.yml", "wheel"): {"attestations": "write", "id-token": "write"},
    (".github/workflows/release.yml", "image"): {"packages": "write", "attestations": "write", "id-token": "write"},
    (".github/workflows/release.yml", "smoke"): {"packages": "read", "attestations": "read"},
    (".github/workflows/release.yml", "release"): {"contents": "write", "packages": "write"},
    (".github/workflows/release.yml", "index"): {"id-token": "write"},
}


@NAMES
def test_workflow__permissions__are_given_by_the_job_and_few(path: Path):
    assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {}
    for name, job in jobs(path).items():
        more = MORE.get((path.relative_to(ROOT).as_posix(), name), {})
        assert job["permissions"].items() <= {"contents": "read", **more}.items() | more.items(), name


def test_workflow__that_writes_on_pull_requests__is_the_one_that_runs_nothing_of_theirs():
    writers = {
        path.name: job
        for path in (ROOT / "workflows").glob("*.yml")
        for job in jobs(path).values()
        if job["permissions"].get("pull-requests") == "write"
    }
    assert writers.keys() == {"autotest-report.yml"}
    steps = writers["autotest-report.yml"]["steps"]
    assert [uses.partition("@")[0] for uses in used(steps)] == [
        "actions/checkout", "actions/setup-python", "org/ci-autotest",
    ]  # fmt: skip
    # One file of the default branch, which names kernels; no `ref`, and no token that stays.
    assert steps[0]["with"] == {
        "persist-credentials": False, "sparse-checkout": "autotest.yml", "sparse-checkout-cone-mode": False,
    }  # fmt: skip


@NAMES
def test_workflow__inputs_given_to_the_action__are_declared(path: Path):
    for job in jobs(path).values():
        for step in job["steps"]:
            if step.get("uses") in {"./", "org/ci-autotest@v1"}:
                assert step.get("with", {}).keys() <= ACTION["inputs"].keys()


def test_container__allow_list__is_documented():
    assert [name for name in container.ALLOWED if f"`{name.removeprefix('--')}`" not in PAGE] == []


def test_files_of_the_runner__are_withheld_and_taken_back():
    assert {*runner.FILES, "STEP_ARGUMENTS"} <= foreign.WITHHELD


def versions(lock: str) -> dict[str, set[str]]:
    """Return the versions in a lock by name; each has its hashes."""
    found: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / "locks" / lock).read_text("utf-8").strip()):
        name, _, version = entry.split()[0].partition("==")
        assert "--hash=sha256:" in entry, name
        found.setdefault(name, set()).add(version.partition("+")[0])
    return found


LOCKS = pytest.mark.parametrize("lock", ["report.txt", "image-cpu.txt", "image-cuda.txt"])


@LOCKS
def test_lock__versions__are_those_of_the_constraints(lock: str):
    pins = re.findall(r"^([\w.-]+)==([^;\s]+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}
    assert [name for name, found in versions(lock).items() if pinned.get(name, next(iter(found))) not in found] == []


@LOCKS
def test_lock__what_the_package_needs__is_in_it(lock: str):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *([] if lock == "report.txt" else project["optional-dependencies"]["torch"])]
    assert {re.split(r"[<>=!~ ;\[]", line)[0] for line in needed} <= versions(lock).keys()
    assert ("torch" in versions(lock)) is (lock != "report.txt")
