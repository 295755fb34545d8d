"""``ci-autotest init``: what it writes works, and what is there stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from ci_autotest.session.starting import FILES, template
from tests.projects import Project

ROOT = Path(__file__).resolve().parents[2]
#: Workflows to copy, by template; they differ in the line that says where to copy them.
COPIES = {"autotest.workflow.yml": "autotest.yml", "autotest-report.workflow.yml": "autotest-report.yml"}


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
    run = project.run()
    assert run.status == 0, run.said
    (result,) = project.report()["results"]
    assert (result["outcome"], result["cases"]["aligned"]) == ("aligned", 20)


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
    assert done.err.endswith("GitHub reads workflows from its root. Run init there.\n")


def test_init__link_in_the_place_of_a_file__is_not_followed(project: Project, tmp_path: Path):
    (project.folder / "autotest.yml").symlink_to(tmp_path / "elsewhere.yml")
    done = project.command("init")
    assert (done.status, (tmp_path / "elsewhere.yml").exists()) == (2, False)
    assert "something else has its place. Move it away." in done.err


@pytest.mark.parametrize("name", COPIES)
def test_init__workflow__is_the_one_to_copy(name: str):
    copy = (ROOT / "workflows" / COPIES[name]).read_text("utf-8")
    assert template(name).partition("\n")[2] == copy.partition("\n")[2]
    assert yaml.safe_load(template(name)) == yaml.safe_load(copy)
