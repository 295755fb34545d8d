"""Findings' folders: whole, and only ours are removed."""

from __future__ import annotations

import pytest

from ci_autotest.errors import OutputError
from ci_autotest.report.finding_folders import check_writable, is_finding_id, prepare, write_finding

FILES = {"repro.py": b"print()\n", "program.json": b"{}\n"}


def tree(folder):
    return {item.relative_to(folder).as_posix(): item.read_bytes() for item in folder.rglob("*") if item.is_file()}


@pytest.mark.parametrize("name", ["layer_norm-3f2a", "a", "__matmul__-00", "a-b-c"])
def test_is_finding_id__ours__is_one(name):
    assert is_finding_id(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a--b", "A", "a/b", "..", "a.b", "a\n", "é", "a" * 201, "a b"])
def test_is_finding_id__not_ours__is_none(name):
    assert not is_finding_id(name)


def test_write_finding__new__holds_the_files_and_nothing_is_left_beside(tmp_path):
    write_finding(tmp_path / "findings" / "relu-01", FILES)

    assert tree(tmp_path) == {"findings/relu-01/repro.py": b"print()\n", "findings/relu-01/program.json": b"{}\n"}


def test_write_finding__there_already__is_replaced_whole(tmp_path):
    write_finding(tmp_path / "findings" / "relu-01", FILES)

    write_finding(tmp_path / "findings" / "relu-01", {"README.md": b"# x\n"})

    assert tree(tmp_path) == {"findings/relu-01/README.md": b"# x\n"}
    assert [item.name for item in (tmp_path / "findings").iterdir()] == ["relu-01"]


def test_write_finding__somebody_keeps_a_file_there__that_file_stays(tmp_path):
    folder = tmp_path / "findings" / "relu-01"
    write_finding(folder, FILES)
    (folder / "notes.txt").write_bytes(b"mine")

    write_finding(folder, {"README.md": b"# x\n"})

    assert tree(folder) == {"README.md": b"# x\n", "notes.txt": b"mine"}


def test_write_finding__writing_fails__old_folder_stays(tmp_path):
    folder = tmp_path / "findings" / "relu-01"
    write_finding(folder, FILES)

    with pytest.raises(TypeError):
        write_finding(folder, {"README.md": b"# x\n", "repro.py": None})

    assert tree(tmp_path) == {"findings/relu-01/repro.py": b"print()\n", "findings/relu-01/program.json": b"{}\n"}
    assert [item.name for item in (tmp_path / "findings").iterdir()] == ["relu-01"]


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        pytest.param("Relu", FILES, "'Relu' is not a finding id", id="id"),
        pytest.param("relu-01", {"../x": b""}, "cannot have a file '../x'", id="name that leads out"),
        pytest.param("relu-01", {"evil.sh": b""}, "cannot have a file 'evil.sh'", id="unknown name"),
    ],
)
def test_write_finding__name_that_is_not_allowed__is_refused(tmp_path, name, files, message):
    with pytest.raises(OutputError, match=message):
        write_finding(tmp_path / "findings" / name, files)

    assert list(tmp_path.iterdir()) == []


def test_write_finding__link_in_its_place__is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "relu-01").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OutputError, match="is a link"):
        write_finding(tmp_path / "relu-01", FILES)

    assert tree(tmp_path / "elsewhere") == {}


def test_write_finding__findings_is_a_file__is_refused(tmp_path):
    (tmp_path / "findings").write_bytes(b"")

    with pytest.raises(OutputError, match="cannot be written"):
        write_finding(tmp_path / "findings" / "relu-01", FILES)


def test_check_writable__absent__leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "a" / "b")

    assert list(tmp_path.iterdir()) == []


def test_check_writable__is_a_file__says_what_to_do(tmp_path):
    (tmp_path / "out").write_bytes(b"")

    with pytest.raises(
        OutputError, match=r"the output folder '.+out' cannot be written: .+ Choose another with --output"
    ):
        check_writable(tmp_path / "out")


def test_prepare__earlier_run__its_findings_are_removed_and_nothing_else(tmp_path):
    findings = tmp_path / "findings"
    write_finding(findings / "relu-01", FILES)
    (findings / ".relu-02.0123abcd.tmp").mkdir()
    (findings / "kept-00").mkdir()
    (findings / "kept-01").mkdir()
    (findings / "kept-01" / "repro.py").write_bytes(b"")
    (findings / "kept-01" / "notes.txt").write_bytes(b"mine")
    (findings / "Kept").mkdir()
    (findings / "Kept" / "repro.py").write_bytes(b"")
    (findings / "kept-02").mkdir()
    (findings / "kept-02" / "README.md").mkdir()
    (findings / "kept-03").write_bytes(b"a file")
    (tmp_path / "relu-04").mkdir()
    (tmp_path / "relu-04" / "repro.py").write_bytes(b"")

    prepare(tmp_path)

    assert sorted(item.name for item in findings.iterdir()) == ["Kept", "kept-00", "kept-01", "kept-02", "kept-03"]
    assert (tmp_path / "relu-04" / "repro.py").exists()


def test_prepare__links__are_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere" / "relu-01"
    write_finding(elsewhere, FILES)
    output = tmp_path / "output"
    (output / "findings").mkdir(parents=True)
    (output / "findings" / "relu-01").symlink_to(elsewhere)

    prepare(output)
    (output / "findings" / "relu-01").unlink()
    (output / "findings").rmdir()
    (output / "findings").symlink_to(tmp_path / "elsewhere")
    prepare(output)

    assert sorted(tree(elsewhere)) == ["program.json", "repro.py"]
