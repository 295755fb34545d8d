"""The history in ``.autotest/`` may be lost or damaged without harm, and does not grow without limit."""

import pytest

from ci_autotest.findings.database import Database
from ci_autotest.values.past_run import RUNS_AT_MOST, past_run
from tests import report_samples as samples


def test_remember__runs__come_back_in_order(tmp_path):
    runs = tuple(past_run(samples.run(seed=seed), time_s=float(seed)) for seed in range(3))
    for run in runs:
        Database(tmp_path).remember(run)

    assert Database(tmp_path).history() == runs


def test_remember__too_many_runs__drops_the_oldest(tmp_path):
    for seed in range(RUNS_AT_MOST + 2):
        Database(tmp_path).remember(past_run(samples.run(seed=seed)))

    kept = Database(tmp_path).history()
    assert (len(kept), kept[0].seed, kept[-1].seed) == (RUNS_AT_MOST, 2, RUNS_AT_MOST + 1)


@pytest.mark.parametrize("data", [b"", b"{}x", b'{"runs": [{"seed": 1}]}', b"[" * 100_000, b"\xff"])
def test_history__damaged_file__is_left_out_and_told(tmp_path, data):
    (tmp_path / "history.json").write_bytes(data)
    database = Database(tmp_path)

    assert database.history() == ()
    assert len(database.notes) == 1


def test_remember__folder_that_is_a_file__is_a_note(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    database = Database(tmp_path / "file")

    database.remember(past_run(samples.run()))

    assert database.notes
