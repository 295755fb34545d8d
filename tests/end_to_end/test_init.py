"""``ci-autotest init``: what it writes works, and what is there stays."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ci_autotest.commands import init as starting
from ci_autotest.commands.init import template
from ci_autotest.errors import OutputError
from tests.projects import Project, python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = starting.FILES["github"]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "repository").mkdir()
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "repository")], check=True)
    return Project(tmp_path / "repository")


def test_init__new_repository__has_a_test_that_runs_and_two_workflows(project: Project):
    done = project.command("init")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[: len(FILES)] == [f"wrote {name}" for name in FILES]
    assert "works only once it is on the default branch" in done.out
    run = project.run("--cases", "4")  # Each case is compiled.
    assert run.status == 0, run.said
    (result,) = project.report()["results"]
    assert (result["outcome"], result["cases"]["aligned"]) == ("aligned", 4)
    done = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", "--autotest-cases=4")
    assert (done.status, "1 passed" in done.out) == (0, True), done.said


def test_init__again__changes_nothing(project: Project):
    project.write("autotest.yml", "cases: 3\n")
    project.command("init")
    before = {name: (project.folder / name).read_text("utf-8") for name in FILES}
    done = project.command("init")
    assert done.out.splitlines()[: len(FILES)] == [f"kept  {name}" for name in FILES]
    assert {name: (project.folder / name).read_text("utf-8") for name in FILES} == before
    assert before["autotest.yml"] == "cases: 3\n"


def test_init__inside_a_repository__says_where_to_run_it(project: Project):
    (project.folder / "inner").mkdir()
    done = Project(project.folder / "inner").command("init")
    assert (done.status, list((project.folder / "inner").iterdir())) == (2, [])
    assert done.err.endswith("CI systems read their files from its root. Run init there.\n")


def link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere.yml")


@pytest.mark.parametrize(
    ("system", "name", "make", "reason"),
    [
        ("github", "autotest.yml", link, "it is a broken link, and init needs a file there."),
        ("github", ".github", Path.touch, "it is a file, and init needs a folder there."),
        ("github", "autotests", link, "it is a broken link, and init needs a folder there."),
        ("gitlab", ".gitlab-ci.yml", Path.mkdir, "it is a folder, and init needs a file there."),
        ("jenkins", "Jenkinsfile", Path.mkdir, "it is a folder, and init needs a file there."),
    ],
)
def test_init__something_in_the_way_of_a_file__is_named_and_nothing_is_written(
    project: Project, system: str, name: str, make: Callable[[Path], None], reason: str
):
    make(project.folder / name)
    before = sorted(project.folder.iterdir())
    done = project.command("init", "--ci", system)
    assert done.status == 2
    assert done.err == (
        f"'{project.folder / name}' is in the way: {reason} Move it away, and run init again. Nothing was written.\n"
    )
    assert sorted(project.folder.iterdir()) == before


def test_write_all__file_that_cannot_be_written__takes_the_others_back(tmp_path: Path):
    (tmp_path / "b").touch()
    with pytest.raises(OutputError, match="/b/c' cannot be written: File exists"):
        starting.write_all({tmp_path / "a": "text", tmp_path / "b" / "c": "text"})
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_init__file_that_can_only_be_written_in_part__leaves_neither_files_nor_folders(project: Project):
    before = sorted(project.folder.rglob("*"))
    # Files of this shell and its programs have 1 KiB at most: less than a workflow.
    argv = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", sys.executable, "-m", "ci_autotest", "init"]
    done = subprocess.run(argv, cwd=project.folder, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr.splitlines()[-1][-21:]) == (2, " Nothing was written."), done.stderr
    assert sorted(project.folder.rglob("*")) == before


class Interrupted(dict[Path, str]):
    """Files of which the last is written when the user interrupts."""

    def items(self) -> Iterator[tuple[Path, str]]:  # type: ignore[override]
        yield from super().items()
        raise KeyboardInterrupt


def test_write_all__interrupted__takes_everything_back_but_files_of_others(tmp_path: Path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "of another").touch()
    with pytest.raises(KeyboardInterrupt):
        starting.write_all(Interrupted({tmp_path / name: "text" for name in ("a", "b/c", "d/e/f")}))
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "b", tmp_path / "b" / "of another"]


is_open = pytest.mark.skipif(
    f"{starting.PLACEHOLDER}/ci-autotest" not in template("workflows/autotest.yml"),
    reason="an organisation has put its own name into the templates",
)


@is_open
@pytest.mark.parametrize(
    ("remotes", "owner"),
    [
        ({"origin": "https://github.com/Acme/kernels.git"}, "Acme"),
        ({"origin": "git@github.com:Acme/kernels.git"}, "Acme"),
        ({"origin": "ssh://git@github.com:22/Acme/kernels"}, "Acme"),
        ({"origin": "https://x:token@github.com/alice/kernels", "upstream": "git@github.com:Acme/kernels"}, "Acme"),
        ({"origin": "/srv/git/kernels.git"}, None),
        ({"origin": "../Acme/kernels.git"}, None),
        ({"origin": "https://github.com/a$b/kernels.git"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("system", starting.FILES)
def test_init__organisation_of_the_remote__is_in_every_file(
    project: Project, remotes: dict[str, str], owner: str | None, system: starting.System
):
    for name, url in remotes.items():
        subprocess.run(["git", "-C", str(project.folder), "remote", "add", name, url], check=True)
    done = project.command("init", "--ci", system)
    written = "".join((project.folder / name).read_text("utf-8") for name in starting.FILES[system])
    places = [f"{match[1]}/ci-autotest" for match in re.finditer(r"([\w-]+)/ci-autotest[@:]v1", written)]
    expected = "org" if owner is None else owner if system == "github" else owner.lower()
    assert (done.status, set(places)) == (0, {f"{expected}/ci-autotest"})
    assert ("replace `org/ci-autotest`" in done.out) is (owner is None)
    assert "ci-autotest docs tutorial" in done.out
    assert "token" not in done.out


@is_open
def test_init__repository_of_another_server__has_no_image_of_its_organisation(project: Project):
    remote = ["remote", "add", "origin", "git@gitlab.example.com:acme/kernels.git"]
    subprocess.run(["git", "-C", str(project.folder), *remote], check=True)
    done = project.command("init", "--ci", "gitlab")
    assert "replace `org/ci-autotest`" in done.out
    assert "ghcr.io/org/ci-autotest:v1" in (project.folder / ".gitlab" / "autotest.gitlab-ci.yml").read_text("utf-8")


def test_init__unknown_system__names_those_that_are_known(project: Project):
    done = project.command("init", "--ci", "travis")
    assert (done.status, list(project.folder.glob("*.yml"))) == (2, [])
    assert "'travis' is not one of 'github', 'gitlab', 'jenkins'" in done.err


def test_init__file_of_gitlab__is_valid_by_its_schema(project: Project):
    project.command("init", "--ci", "gitlab")
    checker = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", "vendor.gitlab-ci"]
    checker += ["--data-transform", "gitlab-ci"]
    files = [str(project.folder / name) for name in (".gitlab-ci.yml", ".gitlab/autotest.gitlab-ci.yml")]
    done = subprocess.run([*checker, *files], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    broken = project.write("broken.yml", Path(files[1]).read_text("utf-8").replace("when: always", "when: ever"))
    assert subprocess.run([*checker, str(broken)], capture_output=True, check=False, timeout=60).returncode == 1


def test_init__installed_package__has_the_workflows_to_copy(tmp_path: Path):
    argv = [sys.executable, "setup.py", "egg_info", f"--egg-base={tmp_path}", "build_py", f"--build-lib={tmp_path}"]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=300)
    argv = [
        sys.executable,
        "-c",
        "import sys; from ci_autotest.commands.init import template; print(template(sys.argv[1]))",
    ]
    for name in ("autotest.yml", "autotest-report.yml"):
        done = subprocess.run([*argv, f"workflows/{name}"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == (ROOT / "workflows" / name).read_text("utf-8") + "\n"
