"""Which files may define tests; nothing is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ci_autotest.discovery import families, nothing_found, select
from ci_autotest.errors import UsageError

TEST = "from ci_autotest import autotest\n"


@pytest.fixture
def project(tmp_path):
    """A project with tests here and there; files that would fail if imported."""
    for name, text in {
        "autotests/autotest_b.py": TEST + "raise SystemExit(1)\n",
        "autotests/a.py": TEST,
        "autotests/deep/er/c.py": TEST,
        "autotests/helper.py": "x = 1\n",
        "autotests/__pycache__/d.py": TEST,
        "autotests/.hidden/e.py": TEST,
        "other/test_f.py": TEST,
        "other/g.py": TEST,
        "other/notes.txt": TEST,
        "other/myautotests.py": "myautotest = 1\n",
        "node_modules/test_x.py": TEST,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_select__default__is_the_folder_autotests(project):
    found = select((), project, project)
    assert found.files == ("autotests/a.py", "autotests/autotest_b.py", "autotests/deep/er/c.py")
    assert (found.read, found.wanted) == (4, {})


def test_select__default_without_that_folder__is_by_name(project):
    (project / "autotests").rename(project / "tests")
    assert select((), project, project).files == ("other/test_f.py", "tests/autotest_b.py")


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (["other"], ("other/g.py", "other/test_f.py")),
        (["other/g.py"], ("other/g.py",)),
        (["other/g.py", "other"], ("other/g.py", "other/test_f.py")),
        (["./other/../other/g.py"], ("other/g.py",)),
        (["autotests/helper.py"], ()),
        (["other/myautotests.py"], ()),
        (["autotests/deep"], ("autotests/deep/er/c.py",)),
    ],
    ids=["folder", "file", "twice", "not normal", "no mention", "another word", "deep"],
)
def test_select__paths__are_files_once_in_order(project, paths, files):
    assert select(paths, project, project).files == files


def test_select__path__begins_in_the_start_and_is_named_from_the_root(project):
    assert select(["g.py"], project, project / "other").files == ("other/g.py",)


def test_select__outside_of_the_root__is_named_in_full(project):
    found = select(["../other/g.py"], project / "autotests", project / "autotests")
    assert found.files == ((project / "other/g.py").resolve().as_posix(),)


def test_select__test_named__is_wanted(project):
    found = select(["other/g.py::one", "other/g.py::Case::two"], project, project)
    assert found.wanted == {"other/g.py": ("one", "Case.two")}


def test_select__file_and_one_of_its_tests__is_the_whole_file(project):
    assert select(["other/g.py::one", "other/g.py"], project, project).wanted == {}


def test_select__missing__says_where_it_was_looked_for(project):
    with pytest.raises(UsageError) as caught:
        select(["nowhere"], project, project)
    assert f"path 'nowhere' does not exist (looked for {project / 'nowhere'})" in str(caught.value)


def test_select__suite__is_each_family(project):
    assert select(["builtin:suite"], project, project).files == tuple(f"builtin:suite/{name}" for name in families())
    assert "activations" in families()


def test_select__family__is_that_one(project):
    found = select(["builtin:suite::pooling"], project, project)
    assert (found.files, found.wanted) == (("builtin:suite/pooling",), {})


def test_select__id_of_a_shipped_test__is_that_test(project):
    found = select(["builtin:suite/pooling::max_pool2d"], project, project)
    assert (found.files, found.wanted) == (("builtin:suite/pooling",), {"builtin:suite/pooling": ("max_pool2d",)})


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("builtin:suite::poolin", "Did you mean 'pooling'?"),
        ("builtin:suite::pooling::x", "Did you mean 'pooling'?"),
        ("builtin:suite::nope", "Known: activations, arguments"),
        ("builtin:suites", "Known: activations, arguments"),
    ],
)
def test_select__no_such_family__names_the_nearest_or_those_there_are(project, path, hint):
    with pytest.raises(UsageError) as caught:
        select([path], project, project)
    assert hint in str(caught.value)


def test_nothing_found__one_file__says_so(project):
    assert nothing_found(select(["autotests/helper.py"], project, project)) == (
        "no test found in 'autotests/helper.py': 1 file read, it defines no function decorated with `autotest`. Without a path, autotests/ is searched, else every "
        "autotest_*.py and test_*.py; `ci-autotest init` writes a first test."
    )


def test_nothing_found__several__is_the_message_of_the_readme(tmp_path):
    folder = tmp_path / "autotests"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.py").write_text("x = 1")
    assert nothing_found(select((), tmp_path, tmp_path)) == (
        "no test found in 'autotests': 4 files read, none defines a function decorated with `autotest`. Without a path, autotests/ is searched, else every "
        "autotest_*.py and test_*.py; `ci-autotest init` writes a first test."
    )


def test_select__file_of_that_name_that_is_no_python__is_imported_to_be_told_broken(project):
    (project / "autotests" / "autotest_c.py").write_text("def (:\n")
    (project / "autotests" / "other.py").write_text("def (:\n")
    (project / "autotests" / "autotest_without.py").write_text("x = 1\n")
    found = select((), project, project).files
    assert [
        name for name in found if name not in {"autotests/a.py", "autotests/autotest_b.py", "autotests/deep/er/c.py"}
    ] == ["autotests/autotest_c.py"]


def test_select__file_that_is_no_text__is_scanned_as_bytes(tmp_path):
    (tmp_path / "a.py").write_bytes(b"\xff\xfe autotest \x00")
    assert select(["a.py"], tmp_path, tmp_path).files == ("a.py",)


def test_select__file_that_cannot_be_read__is_named(project):
    (project / "autotests" / "autotest_gone.py").symlink_to(project / "nowhere.py")
    with pytest.raises(
        UsageError, match=r"autotest_gone\.py cannot be read: No such file or directory\. Make it readable"
    ):
        select((), project, project)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
@pytest.mark.parametrize("name", ["locked", "locked/deeper"])
def test_select__folder_that_cannot_be_read__is_refused_by_name(name: str, tmp_path: Path):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    folder.chmod(0)
    try:
        with pytest.raises(UsageError) as caught:
            select([str(tmp_path / "locked")], tmp_path, tmp_path)
    finally:
        folder.chmod(0o700)
    assert (
        str(caught.value)
        == f"folder '{folder}' cannot be read: Permission denied. Make it readable, or name other paths."
    )


def test_select__folder_that_the_system_does_not_list__is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    listed = os.scandir

    def refusing(path: Any) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    (tmp_path / "autotests" / "locked").mkdir(parents=True)
    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(UsageError, match=r"folder '.*/autotests/locked' cannot be read: Permission denied"):
        select(["autotests"], tmp_path, tmp_path)
