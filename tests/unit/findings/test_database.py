"""The database: written and read back, bounded, and never trusted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ci_autotest.findings.database import FINDINGS_AT_MOST, Database, FindingEntry, KeptFinding, Learned

TESTS = {"a.py::t": Learned(case_s=0.5, acceptance=0.9, day=3), "a.py::u": Learned(case_s=0.001)}


def kept(name: str = "relu-3f2a1b", **more) -> KeptFinding:
    entry = FindingEntry(
        id=name, candidate="kernels", operator="torch.relu", kind="value", test="a.py::t", case=4, attempt=1, seed=7, **more
    )  # fmt: skip
    return KeptFinding(entry, b"program", b"tensors")


def saved(folder: Path, *items: KeptFinding) -> Database:
    Database(folder).save(TESTS, items)
    return Database(folder)


def test_database__written__is_read_back(tmp_path: Path):
    database = saved(tmp_path / "db", kept(), kept("exp-000000", is_fixed=True, day=9))
    assert (database.durations(), database.findings()) == (
        TESTS, [kept("exp-000000", is_fixed=True, day=9), kept()],
    )  # fmt: skip
    assert (tmp_path / "db" / ".gitignore").read_text() == "*\n"
    assert database.notes == []


def test_database__lost__is_empty(tmp_path: Path):
    database = Database(tmp_path / "none")
    assert (database.durations(), database.findings(), database.notes) == ({}, [], [])


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("durations.json", b"{", "damaged"),
        ("durations.json", b'{"schema": "ci-autotest/durations/2", "tests": {}}', "damaged"),
        ("durations.json", b'{"tests": {"a": {"case_s": -1}}}', "damaged"),
        ("durations.json", b'{"tests": {"a": {"case_s": "1"}}}', "damaged"),
        ("durations.json", b'{"tests": {"a": {"case_s": NaN}}}', "damaged"),
        ("findings/relu-3f2a1b/entry.json", b"\x00", "damaged"),
        ("findings/relu-3f2a1b/entry.json", msgspec.json.encode(kept("exp-000000").entry), "incomplete"),
        ("findings/relu-3f2a1b/program.json", None, "incomplete"),
        ("findings/relu-3f2a1b/tensors.safetensors", None, "incomplete"),
    ],
)
def test_database__damaged__is_left_out_and_told(tmp_path: Path, name: str, content: bytes | None, note: str):
    database = saved(tmp_path, kept())
    path = tmp_path / name
    path.unlink() if content is None else path.write_bytes(content)
    found = database.durations(), database.findings()
    assert ([] if name.startswith("findings") else {}) in found
    assert [note in text for text in database.notes] == [True]


def test_database__name_that_leaves_the_folder__is_not_looked_at(tmp_path: Path):
    database = saved(tmp_path, kept())
    (tmp_path / "findings" / "relu-3f2a1b").rename(tmp_path / "findings" / "..evil")
    assert database.findings() == []


def test_database__links__are_not_followed(tmp_path: Path):
    database = saved(tmp_path, kept())
    secret = tmp_path / "secret"
    secret.write_bytes(b"{}")
    path = tmp_path / "durations.json"
    path.unlink()
    path.symlink_to(secret)
    assert database.durations() == {}
    assert "link" in database.notes[0]


def test_database__too_many_findings__the_oldest_fixed_ones_go(tmp_path: Path):
    fixed = [kept(f"a-{i:06x}", is_fixed=True, day=i) for i in range(FINDINGS_AT_MOST)]
    saved(tmp_path, *fixed)
    found = saved(tmp_path, *fixed, kept()).findings()
    assert len(found) == FINDINGS_AT_MOST
    assert kept() in found
    assert fixed[0] not in found


def test_database__folder_that_cannot_be_written__is_a_note(tmp_path: Path):
    (tmp_path / "db").write_text("a file")
    database = Database(tmp_path / "db")
    database.save(TESTS, [kept()])
    assert ["cannot be written" in note for note in database.notes] == [True]


def test_database__two_copies_merged_by_file__is_one(tmp_path: Path):
    saved(tmp_path / "one", kept())
    saved(tmp_path / "two", kept("exp-000000"))
    for file in (tmp_path / "two").rglob("*.*"):
        target = tmp_path / "one" / file.relative_to(tmp_path / "two")
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file():
            target.write_bytes(file.read_bytes())
    assert [item.entry.id for item in Database(tmp_path / "one").findings()] == ["exp-000000", "relu-3f2a1b"]


def test_failed__written__is_read_back_and_kept_by_a_run_that_says_nothing(tmp_path: Path):
    database = Database(tmp_path)
    database.save({}, [])
    database.save_failed(["a.py::one", "x" * 501])
    database.save({}, [])
    assert (Database(tmp_path).failed(), database.notes) == (("a.py::one",), [])


@pytest.mark.parametrize("content", [b"", b"{}[", b'{"tests": [1]}', b'{"tests": ["' + b"x" * 501 + b'"]}', b"\xff"])
def test_failed__damaged__is_left_out_and_told(tmp_path: Path, content: bytes):
    (tmp_path / "failed.json").write_bytes(content)
    database = Database(tmp_path)
    assert database.failed() == ()
    assert [note.startswith(f"{tmp_path / 'failed.json'} is damaged") for note in database.notes] == [True]
