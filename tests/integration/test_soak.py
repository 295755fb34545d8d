"""The soak of ``benchmarks/soak``: what ends a process costs one comparison, what was done stays, what is new is told."""

from __future__ import annotations

import json

import pytest

from benchmarks.soak.__main__ import go_on, print_accused, print_uncompared, stack_of
from benchmarks.soak.journal import REFERENCE, Journal, Key
from benchmarks.soak.reading import Row, read
from tests.integration.dying_chunk import TESTS

DYING = "tests.integration.dying_chunk"
ITEM = {
    "candidate": "references",
    "test": "a",
    "operator": "torch.f",
    "kind": "value",
    "what": "w",
    "detail": "d",
    "case": 3,
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    path = tmp_path_factory.mktemp("soak") / "soak.jsonl"
    go_on(path, 0, 3, DYING)
    return path


def test_go_on__comparison_that_ends_its_process__is_lost_and_nothing_else(done):
    journal = Journal(done)
    lost = Key(TESTS[0], 1, "channels last")
    assert {key: (record["how"], record["again"]) for key, record in journal.lost.items()} == {lost: ("SIGSEGV", True)}
    assert "dying_chunk.py" in journal.lost[lost]["stack"]
    assert sorted(journal.cases) == sorted((test, case) for test in TESTS for case in range(3))
    assert set(journal.cases[lost[:2]]["outcomes"]) == set(journal.cases[TESTS[1], 1]["outcomes"]) - {lost.name}
    assert journal.counts()["channels last", "SIGSEGV"] == 1


def test_go_on__again__writes_nothing_twice(done):
    before = done.read_text()
    go_on(done, 0, 3, DYING)
    assert done.read_text() == before


def test_print_accused__crash_that_nobody_has_read__status_1(done, capsys):
    assert print_accused(Journal(done)) == 1
    assert f"channels last | {TESTS[0]} | 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [({}, 1), ({"references": "unsupported"}, 1), ({"one": "aligned", "two": "not_run"}, 1), ({"one": "accused"}, 0)],
)
def test_print_uncompared__nothing_of_an_implementation__is_status_1(tmp_path, outcomes, status):
    journal = Journal(tmp_path / "soak.jsonl")
    profile = "ordinary" if outcomes else "rejected"
    journal.write({"test": "a", "case": 0, "profile": profile, "outcomes": outcomes, "found": []})
    assert print_uncompared(journal) == status


def test_journal__line_that_was_not_finished__is_cut_off(tmp_path):
    path = tmp_path / "soak.jsonl"
    journal = Journal(path)
    journal.write({"test": "a", "case": 0, "profile": "ordinary", "outcomes": {"one": "aligned"}, "found": []})
    whole = path.read_text()
    path.write_text(whole + '{"test": "a", "case": 1, "outc')
    again = Journal(path)
    assert (path.read_text(), again.is_done("a", 0), again.is_done("a", 1)) == (whole, True, False)


def test_journal__of_other_sources__is_refused(tmp_path):
    path = tmp_path / "soak.jsonl"
    path.write_text(json.dumps({"head": {"seed": 0, "sources": "another", "python": "3.11"}}) + "\n")
    with pytest.raises(SystemExit, match="begun on other sources"):
        Journal(path)


def test_journal__recording_that_ended_its_process__is_done(tmp_path):
    journal = Journal(tmp_path / "soak.jsonl")
    journal.write({"test": "a", "case": 0, "lost": REFERENCE, "how": "SIGKILL", "stack": "", "again": False})
    assert (journal.is_done("a", 0), journal.is_done("a", 1)) == (True, False)


@pytest.mark.parametrize(
    ("where", "is_read"),
    [
        pytest.param(
            {"candidate": ["references"], "operator": ["torch.g", "torch.*"]}, True, id="one of several patterns"
        ),
        pytest.param({"candidate": ["references"], "kind": ["gradient"]}, False, id="one field of another kind"),
    ],
)
def test_read__row__explains_what_matches_all_its_fields(where, is_read):
    row = Row("what", "a true finding", "", where)
    assert read(ITEM, (row,)) == (row if is_read else None)


def test_stack_of__fault_handler__three_innermost_places():
    said = "Fatal Python error: Segmentation fault\n\n" + "".join(
        f'  File "/a/b/f{i}.py", line {i} in g{i}\n' for i in range(5)
    )
    assert stack_of(said) == "f0.py:0 g0, f1.py:1 g1, f2.py:2 g2"
