"""What is said to input that is refused: the exact text and the exit status, and nothing else is said or written."""

from __future__ import annotations

import re
import shlex
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ci_autotest.doc_links import Page, more
from tests.projects import HEAD, Done, Project, together

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ADD = """
@autotest(n=2)
def add():
    return random_tensor(ndim=1) + 1
"""
TORCH = "candidates: [{name: torch, backend: torch}]\n"
FILE = "autotests/autotest_all.py"
MISSING = (
    "replacement 'nokernels.add' cannot be imported: ModuleNotFoundError: No module named 'nokernels'. It is looked "
    "for in the test file's folder, the configuration's folder, the current folder and PYTHONPATH." + more(Page.IMPORTS)
)


class Row(NamedTuple):
    """One bad input.

    Attributes:
        words: The command.
        message: All that is said; ``{folder}`` is the project's.
        status: Exit status.
        config: ``autotest.yml``.
        files: Other files than the one good test.
    """

    words: str
    message: str
    status: int = 2
    config: str = TORCH
    files: Mapping[str, str] = MappingProxyType({})


CONFIGURATION = {
    "unknown key": Row("run", "{folder}/autotest.yml: unknown key 'case'. Did you mean 'cases'?", config="case: 3\n"),
    "unknown key, none near": Row(
        "run",
        "{folder}/autotest.yml: unknown key 'zzz'. Known: budget, candidates, case_timeout, cases, compat, fail_on, known, "
        "memory, opinfo, output, paths, reference, seed, slower_factor, strictness, "
        "tolerances, workers.",
        config="zzz: 3\n",
    ),
    "unknown key of a candidate": Row(
        "run",
        "{folder}/autotest.yml: unknown key candidates[0].'replaces'. Did you mean 'replace'?",
        config="candidates: [{name: a, backend: substitute, replaces: {}}]\n",
    ),
    "wrong type": Row(
        "run", "{folder}/autotest.yml: cases is text; a whole number is expected.", config="cases: many\n" + TORCH
    ),
    "wrong type of a section": Row(
        "run", "{folder}/autotest.yml: candidates is text; a list is expected.", config="candidates: torch\n"
    ),
    "wrong type of a section's entry": Row(
        "run",
        "{folder}/autotest.yml: candidates[0] is a whole number; a mapping is expected.",
        config="candidates: [3]\n",
    ),
    "wrong type of the file": Row(
        "run", "{folder}/autotest.yml: the file is a list; a mapping is expected.", config="- a\n"
    ),
    "unknown backend": Row(
        "run",
        "{folder}/autotest.yml: candidates[0].backend is 'substitut'; allowed: torch, torch.compile, fx, onnxruntime, export, substitute, module, dtensor, ddp, fsdp, and what installed packages add: none.",
        config="candidates: [{name: a, backend: substitut}]\n",
    ),
    "unknown strictness": Row(
        "run",
        "{folder}/autotest.yml: strictness is 'loose'; allowed: tolerance, measured, ulp, bitwise.",
        config="strictness: loose\n" + TORCH,
    ),
    "seed": Row(
        "run", "{folder}/autotest.yml: seed is -1. Give 0 to 9223372036854775807.", config="seed: -1\n" + TORCH
    ),
    "no YAML": Row(
        "run",
        "configuration {folder}/autotest.yml is not YAML, line 2, column 1: expected the node content, "
        "but found '<stream end>'.",
        config="candidates: [\n",
    ),
    "missing file": Row("run --config none.yml", "configuration none.yml cannot be read: No such file or directory."),
    "a folder as file": Row(
        "run --config autotests", "configuration autotests cannot be read: it is not a regular file."
    ),
    "no candidate": Row(
        "run",
        "no candidate: name one with --candidate (cuda, jax, mindspore, oneflow, onnxruntime, paddle, torch, torch.compile), or list your own under `candidates:` "
        "in autotest.yml." + more(Page.NO_CANDIDATE),
        config="cases: 3\n",
    ),
    "two candidates with one name": Row(
        "run",
        "{folder}/autotest.yml: two candidates are named 'a'. Give each a name of its own.",
        config="candidates: [{name: a, backend: torch}, {name: a, backend: torch}]\n",
    ),
    "a substitute that replaces nothing": Row(
        "run",
        "{folder}/autotest.yml: candidate 'a' replaces nothing. Give replace: {operator: module.function}.",
        config="candidates: [{name: a, backend: substitute}]\n",
    ),
    "an fx candidate without a pass": Row(
        "run",
        "{folder}/autotest.yml: candidate 'a' of backend fx has no transform, so there is no pass to test. "
        "Give transform: module.function.",
        config="candidates: [{name: a, backend: fx}]\n",
    ),
    "a replacement that is no path": Row(
        "run",
        "{folder}/autotest.yml: candidate 'a' replaces torch.add by 'add'. Write module.function.",
        config="candidates: [{name: a, backend: substitute, replace: {torch.add: add}}]\n",
    ),
    "unknown candidate": Row(
        "run --candidate torhc",
        "unknown candidate 'torhc'. Did you mean 'torch'? Known: cuda, jax, mindspore, oneflow, onnxruntime, paddle, torch, torch.compile.",
    ),
    "case_timeout": Row(
        "run",
        "{folder}/autotest.yml: case_timeout is 'soon', which is not a duration. Write a number with ms, s, m or h, "
        "such as 90s or 10m.",
        config="case_timeout: soon\n" + TORCH,
    ),
    "seed commit without one": Row(
        "run --seed commit",
        "seed is 'commit', but GITHUB_SHA is not set. Set it to the commit's hash, or give --seed a number.",
    ),
}
ARGUMENTS = {
    "shard 5/4": Row(
        "run --shard 5/4",
        "shard '5/4' names shard 5 of 4: the index runs from 1 to the count. Use 4/4 or lower.",
    ),
    "shard 0/4": Row(
        "run --shard 0/4",
        "shard '0/4' names shard 0 of 4: the index runs from 1 to the count. Use 1/4 or higher.",
    ),
    "shard x": Row("run --shard x", "shard 'x' is not K/N. Write 1/4 for the first of four."),
    **{
        f"seed {seed}": Row(
            f"run --seed {seed}",
            f"--seed is '{seed}'. Give a number from 0 to 9223372036854775807, random or commit.",
        )
        for seed in ("x", "-1", "9223372036854775808")
    },
    **{
        f"workers {count}": Row(
            f"run --workers {count}", f"--workers is '{count}'. Give a number from 0 to 10000, or auto."
        )
        for count in ("x", "-1")
    },
    **{
        f"budget {budget}": Row(
            f"run --budget {budget}",
            f"--budget is '{budget}', which is not a duration. Write a number with ms, s, m or h, such as 90s or 10m.",
        )
        for budget in ("soon", "0s")
    },
    **{
        f"cases {count}": Row(
            f"{command} --cases {count}", f"--cases is '{count}'. Give a whole number, from 1 to 1,000,000,000."
        )
        for command, count in (("run", "0"), ("run", "nine"), ("list", "1.5"), ("run", "1000000001"))
    },
    "shards nine": Row("list --shards nine", "--shards is 'nine'. Give a whole number, 1 or more."),
    "case nine": Row("draws --case nine", "--case is 'nine'. Give a whole number, 0 or more."),
    **{
        f"empty path of {command}": Row(
            f"{command} ''", "path '' names no file. Give a file, a folder or builtin:suite."
        )
        for command in ("run", "list")
    },
    "test without a file": Row("run ::add", "path '::add' names no file. Give a file, a folder or builtin:suite."),
    "fail-on x": Row(
        "run --fail-on x",
        "Invalid value for '--fail-on': 'x' is not one of 'misaligned', 'new', 'never', 'flaky', 'leniency', 'slower'. "
        "See ci-autotest run --help.",
    ),
    "unknown option": Row(
        "run --case 3",
        "No such option '--case'. (Did you mean one of: '--cases', '--seed', '--set'?) See ci-autotest run --help.",
    ),
    "unknown command": Row("nope", "No such command 'nope'. See ci-autotest --help."),
    "report without a folder": Row("report", "Missing argument 'FOLDERS...'. See ci-autotest report --help."),
    "path that does not exist": Row(
        "run nowhere",
        "path 'nowhere' does not exist (looked for {folder}/nowhere). Give a file, a folder or builtin:suite.",
    ),
    "path to list that does not exist": Row(
        "list nowhere",
        "path 'nowhere' does not exist (looked for {folder}/nowhere). Give a file, a folder or builtin:suite.",
    ),
    "test that does not exist": Row(f"run {FILE}::nope", f"{FILE} has no test 'nope'. It has add."),
    "family with a spelling mistake": Row(
        "run builtin:suite/reduction",
        "'builtin:suite/reduction' is not a family of the shipped suite. Did you mean 'reductions'?",
    ),
    "family that does not exist": Row(
        "run builtin:suite::nope",
        "'builtin:suite::nope' is not a family of the shipped suite. Known: activations, arguments, "
        "arithmetic, attention, autograd, batches, call_forms, comparison, complex_numbers, convolutions, "
        "creation, edge_values, embedding, extreme_cases, fourier, indexing, interpolation, large_sizes, "
        "linear_algebra, losses, matrices, normalization, places, pointwise, pooling, randomness, recurrent, "
        "reductions, scatter, shape, sorting, special_functions, two_dtypes, windows.",
    ),
    "baseline without a report": Row(
        "run --baseline nowhere",
        "'nowhere' holds no report.json. Give the output folder of a run.",
    ),
    "report of nothing": Row("report nowhere", "'nowhere' holds no report.json. Give the output folder of a run."),
    "issue of nothing": Row(
        "issue nowhere/findings/exp-123456",
        "'nowhere' holds no report.json. Give the folder of a finding, as autotest-report/findings/exp-123456.",
    ),
    "issue of no folder": Row(
        "issue nowhere --output elsewhere",
        "'nowhere' is no folder of a finding, and 'elsewhere' holds no report.json. Give the folder of a finding, as "
        "autotest-report/findings/exp-123456.",
    ),
    "replay of nothing": Row("replay autotests", "'autotests' holds no program.json. Give the folder of a finding."),
}
CAPTURE = {
    "capture: no program of Python": Row(
        "capture torchrun train.py",
        "capture runs a program of Python, and 'torchrun' is none. Write for example: ci-autotest capture -o autotests "
        "python train.py",
    ),
    "capture: no script": Row(
        "capture python -u",
        "'python -u' names no script, module (-m) or text (-c). Write for example: ci-autotest capture -o autotests "
        "python train.py",
    ),
    "capture: no interpreter": Row(
        "capture ./nowhere/python train.py",
        "'./nowhere/python' cannot be run: No such file or directory. Write for example: ci-autotest capture -o "
        "autotests python train.py",
    ),
    "capture: tests that exist": Row(
        "capture python train.py",
        "autotests/autotest_train.py exists, and somebody may have changed it. Choose another folder with --output, or "
        "replace it with --force.",
        files={"autotests/autotest_train.py": ""},
    ),
    "capture: a file in place of the folder": Row(
        "capture -o autotest.yml python train.py",
        "'autotest.yml' is a file. Name a folder for the tests with --output.",
    ),
}
TESTS = {
    "no test in one file": Row(
        "run one.py",
        "no test found in 'one.py': 1 file read, it defines no function decorated with `autotest`. Without a path, autotests/ is searched, else every "
        "autotest_*.py and test_*.py; `ci-autotest init` writes a first test." + more(Page.NO_TEST),
        status=3,
        files={"one.py": HEAD},
    ),
    "no test in a folder": Row(
        "run empty",
        "no test found in 'empty': 4 files read, none defines a function decorated with `autotest`. Without a path, autotests/ is searched, else every "
        "autotest_*.py and test_*.py; `ci-autotest init` writes a first test." + more(Page.NO_TEST),
        status=3,
        files={f"empty/{name}.py": "x = 1\n" for name in "abcd"},
    ),
    "two tests with one id": Row(
        "run one.py two.py",
        "two tests have the id 'same': one.py:4 and two.py:3. Give one of them another @autotest(id=...).",
        files={
            "one.py": HEAD + "\n@autotest(id='same')\ndef a():\n    return random_tensor() + 1\n",
            "two.py": HEAD + "@autotest(id='same')\ndef b():\n    return random_tensor() + 1\n",
        },
    ),
    "required candidate without its module": Row(
        "run",
        f"candidate 'k' is required and not available: {MISSING}",
        status=4,
        config="candidates: [{name: k, backend: substitute, required: true, replace: {torch.add: nokernels.add}}]\n",
    ),
    "named candidate without its module": Row(
        "run --candidate k",
        f"candidate 'k' is required and not available: {MISSING}",
        status=4,
        config="candidates: [{name: k, backend: substitute, replace: {torch.add: nokernels.add}}]\n",
    ),
    "named candidate whose module says what we say of devices": Row(
        "run --candidate k",
        "candidate 'k' is required and not available: replacement 'hostile.add' cannot be imported: "
        "ImportError: 'k' asks for more (hostile.py, line 1 in <module>).",
        status=4,
        config="candidates: [{name: k, backend: substitute, replace: {torch.add: hostile.add}}]\n",
        files={"hostile.py": "raise ImportError(\"'k' asks for more\")\n"},
    ),
    "isolated on another backend": Row(
        "run",
        "{folder}/autotest.yml: candidate 't' has 'isolated', which backend torch does not use. Write backend: substitute, "
        "or remove it.",
        config="candidates: [{name: t, backend: torch, isolated: true}]\n",
    ),
    "env without a process": Row(
        "run",
        "{folder}/autotest.yml: candidate 't' has 'env', which backend torch does not use. Write backend: substitute or module, "
        "or remove it.",
        config="candidates: [{name: t, backend: torch, env: {A: b}}]\n",
    ),
    "env that is not read": Row(
        "run",
        "{folder}/autotest.yml: candidate 't' sets PYTHONPATH, which its process does not read, because Python starts "
        "isolated (-I). Remove it.",
        config="candidates: [{name: t, backend: module, module: torch, env: {PYTHONPATH: b}}]\n",
    ),
    "candidate without its function": Row(
        "run",
        "candidate 'k': module 'kernels' has no function 'ad'. Did you mean 'add'?",
        config="candidates: [{name: k, backend: substitute, replace: {torch.add: kernels.ad}}]\n",
        files={"kernels.py": "def add(a, b):\n    return a\n"},
    ),
}
CUDA = (
    "torch {torch} cannot use device 'cuda' here (Torch not compiled with CUDA enabled). "
    "Run on a machine that has one, or ask for cpu."
)
DEVICES = {
    "device that is not there": Row(
        "run --device cuda", f"candidate 'torch' is required and not available: {CUDA}", status=4
    ),
    "candidate's device that is not there": Row(
        "run --candidate cuda", f"candidate 'cuda' is required and not available: {CUDA}", status=4
    ),
    "reference's device that is not there": Row(
        "run", f"the reference: {CUDA}", status=4, config="reference: {device: cuda}\n" + TORCH
    ),
}
ROWS = {**CONFIGURATION, **ARGUMENTS, **CAPTURE, **TESTS, **DEVICES}


def project_of(row: Row, folder: Path) -> Project:
    project = Project(folder)
    project.tests(ADD)
    project.write("autotest.yml", row.config)
    for name, text in row.files.items():
        project.write(name, text)
    return project


def files(folder: Path) -> dict[str, Any]:
    """Return the project's files with their content; what Python itself caches is no business of ours."""
    found = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in found}


class Answer(NamedTuple):
    """What a command did, and the project's files before and after it."""

    done: Done
    message: str
    before: dict[str, Any]
    after: dict[str, Any]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Return what came of each of ``ROWS``."""
    return dict(zip(ROWS, together(*(partial(answer, row, tmp_path_factory) for row in ROWS.values())), strict=True))


def answer(row: Row, folders: pytest.TempPathFactory) -> Answer:
    project = project_of(row, folders.mktemp("row"))
    project.write("autotest-report/report.json", "of an earlier run")
    project.write("autotest-report/findings/softmax-abc123/program.json", "of an earlier run")
    before = files(project.folder)
    done = project.command(*shlex.split(row.words))
    message = row.message.replace("{folder}", str(project.folder)).replace("{torch}", version("torch"))
    return Answer(done, message, before, files(project.folder))


@pytest.mark.parametrize("name", ROWS)
def test_command__bad_input__says_one_thing_and_touches_nothing(name: str, answers: dict[str, Answer]):
    if name in DEVICES and "+cpu" not in version("torch"):
        pytest.skip("says what a torch without CUDA says")
    done, message, before, after = answers[name]
    assert (done.status, done.err, after) == (ROWS[name].status, f"{message}\n", before)
    assert re.fullmatch(r"(seed 0: [0-9]+ test files?( on .*)?\n)?", done.out)
