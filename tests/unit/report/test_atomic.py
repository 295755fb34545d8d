"""Files are replaced whole or not at all."""

from __future__ import annotations

import pytest

from ci_autotest.errors import OutputError
from ci_autotest.report.atomic import write_bytes, write_text


def test_write_bytes__file_is_there__is_replaced_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(b"old")

    write_bytes(path, b"new")

    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == {"report.json": b"new"}


def test_write_bytes__renaming_fails__old_stays_and_says_what_to_do(tmp_path):
    # A folder in the file's place: the temporary file is written and cannot be renamed onto it.
    path = tmp_path / "report.json"
    path.mkdir()
    (path / "inside").write_bytes(b"old")

    with pytest.raises(
        OutputError, match=r"report\.json cannot be written: .+\. Choose another folder with --output\."
    ):
        write_bytes(path, b"new")

    assert [item.relative_to(tmp_path).as_posix() for item in tmp_path.rglob("*")] == [
        "report.json",
        "report.json/inside",
    ]


def test_write_bytes__folder_is_missing__is_refused(tmp_path):
    with pytest.raises(OutputError, match="No such file or directory"):
        write_bytes(tmp_path / "absent" / "report.json", b"new")


def test_write_bytes__mode__is_the_one_of_any_new_file(tmp_path):
    (tmp_path / "usual").write_bytes(b"")

    write_bytes(tmp_path / "ours", b"")

    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_write_text__lone_surrogate__is_written_as_an_escape(tmp_path):
    write_text(tmp_path / "page.md", "a\udc80\n")

    assert (tmp_path / "page.md").read_bytes() == b"a\\udc80\n"
