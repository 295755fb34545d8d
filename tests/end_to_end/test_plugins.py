"""A package beside ci-autotest adds a kind of candidate and a source of tests: its wheel is built, installed and run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest.commands.output_writer import permissions_in
from ci_autotest.discovery import select
from ci_autotest.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
pytestmark = pytest.mark.heavy


class FreshEnvironment:
    """A fresh environment that has ci-autotest and what it needs, and wheels of others."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        self.packages = Path(subprocess.check_output([str(self.python), "-c", code], text=True).strip())
        beside = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
        (self.packages / "beside.pth").write_text(beside)

    def install(self, project: Path, folder: Path) -> None:
        """Build a project's wheel, and install it."""
        own = folder / "built"
        shutil.copytree(project, own)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        how = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
        subprocess.run([*pip, "wheel", *how, str(own)], check=True)
        (wheel,) = folder.glob("*.whl")
        where = ["--no-deps", "--no-index", "--target", str(self.packages)]
        subprocess.run([*pip, "install", *where, str(wheel)], check=True)

    def run(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), "-m", "ci_autotest", *words]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> FreshEnvironment:
    found = FreshEnvironment(tmp_path_factory.mktemp("environment"))
    found.install(EXAMPLE, tmp_path_factory.mktemp("wheel"))
    return found


def configured(folder: Path, row: str) -> Path:
    (folder / "autotest.yml").write_text(f"candidates: [{row}]\n")
    return folder


def test_run__kind_and_source_of_a_package__has_a_finding_a_repro_and_a_comment(
    environment: FreshEnvironment, tmp_path: Path
):
    configured(tmp_path, "{name: toy, backend: toy, level: 2}")
    done = environment.run(tmp_path, "run", "source:toy", "--cases", "4")
    assert done.returncode == 1, done.stdout + done.stderr
    output = tmp_path / "autotest-report"
    report: dict[str, Any] = json.loads((output / "report.json").read_bytes())
    (finding,) = report["findings"]
    assert (finding["operator"], finding["test"]) == ("torch.nn.functional.gelu", "source:toy/smooth::gelu")
    outcomes = {item["test"]: item["outcome"] for item in report["results"]}
    assert outcomes == {"source:toy/smooth::gelu": "misaligned", "source:toy/smooth::sigmoid": "aligned"}
    assert "torch.nn.functional.gelu" in (output / "comment.md").read_text()
    script = output / "findings" / finding["id"] / "repro.py"
    assert "ci_autotest_toy.compiler.compiled(*body, level=2)" in script.read_text()
    again = subprocess.run([str(environment.python), str(script)], capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stdout + again.stderr


def test_run__one_test_of_a_source_at_a_level_without_a_fault__is_aligned(
    environment: FreshEnvironment, tmp_path: Path
):
    configured(tmp_path, "{name: toy, backend: toy, level: 1}")
    done = environment.run(tmp_path, "run", "source:toy/smooth::gelu", "--cases", "2")
    assert done.returncode == 0, done.stdout + done.stderr


def other(folder: Path, name: str, points: Sequence[str], **files: str) -> Path:
    """Return the project of another package."""
    folder.mkdir()
    lines = "".join(f"{point}\n" for point in points)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\n'
        f'name = "{name}"\nversion = "1"\n[project.entry-points."ci_autotest.kinds"]\n{lines}[tool.setuptools]\n'
        f"py-modules = {[*files]}\n"
    )
    for module, text in files.items():
        (folder / f"{module}.py").write_text(text)
    return folder


SAID = {
    "toy": "backend 'toy' is provided by two packages, another-toy and ci-autotest-toy. Uninstall one of them.",
    "broken": "backend 'broken' of package another-toy cannot be imported: ModuleNotFoundError: No module named "
    "'a_module_that_is_not_there'.",
    "ends": "backend 'ends' of package another-toy cannot be imported: SystemExit: 0.",
    "plain": "backend 'plain' is 3, which is not a class of candidates with tag='plain'",
    "brokn": "what installed packages add: broken, ends, plain, toy.",
}


def test_run__kinds_that_cannot_be_used__are_one_sentence_each_and_others_go_on(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    points = ["toy = 'another:Kind'", "broken = 'another:Kind'", "plain = 'plain_kind:x'", "ends = 'ends:x'"]
    files = {
        "another": "import a_module_that_is_not_there\n",
        "plain_kind": "x = 3\n",
        "ends": "import sys; sys.exit(0)",
    }
    own = FreshEnvironment(tmp_path_factory.mktemp("other"))
    for project in (EXAMPLE, other(tmp_path_factory.mktemp("src") / "p", "another-toy", points, **files)):
        own.install(project, tmp_path_factory.mktemp("wheel"))
    for backend, sentence in SAID.items():
        done = own.run(configured(tmp_path, f"{{name: c, backend: {backend}}}"), "list", "source:toy")
        assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
    done = own.run(configured(tmp_path, "{name: t, backend: torch}"), "list", "source:toy")
    assert (done.returncode, "source:toy/smooth::gelu" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("row", "path", "sentence"),
    [
        ("{name: c, backend: toy, level: 7}", "source:toy", "candidate 'c' has level: 7. Give 0 to 2."),
        ("{name: c, backend: toy, levl: 1}", "source:toy", "unknown key candidates[0].'levl'. Did you mean 'level'?"),
        ("{name: c, backend: toy, level: x}", "source:toy", "candidates[0].level is text; a whole number is expected."),
        ("{name: c, backend: toy}", "source:toi", "source 'toi' is provided by no installed package. Did you mean 'toy'?"),
        ("{name: c, backend: toy}", "source:toy/x", "is not a module with tests of source 'toy'. Known: smooth."),
    ],
)  # fmt: skip
def test_list__what_is_wrong_with_a_kind_or_source__is_one_sentence(
    row: str, path: str, sentence: str, environment: FreshEnvironment, tmp_path: Path
):
    done = environment.run(configured(tmp_path, row), "list", path)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr


def test_permissions_in__package_of_a_kind_is_not_here__other_rows_permit_what_they_name(tmp_path: Path):
    """A job that only comments need not have the packages."""
    row = "{name: k, backend: substitute, replace: {torch.exp: mine.exp}}, {name: c, backend: not_here, level: 2}"
    found = permissions_in(configured(tmp_path, row) / "autotest.yml")
    assert found.names == {"mine.exp"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "names 'parent.tests_in', which is not an installed package"),
        ({"parent/__init__.py": "raise SystemExit(7)", "parent/tests_in/__init__.py": "from ci_autotest import autotest"}, ""),
    ],
    ids=["missing", "parent is not imported"],
)  # fmt: skip
def test_select__source_within_a_package__imports_nothing_of_it(
    files: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("ci_autotest.discovery.module_in", lambda _: "parent.tests_in")
    for name, text in {**files, **({"parent/tests_in/a.py": "autotest"} if files else {})}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if said:
        with pytest.raises(ConfigError, match=said):
            select(["source:nested"], tmp_path, tmp_path)
    else:
        assert select(["source:nested"], tmp_path, tmp_path).files == ("source:nested/a",)
