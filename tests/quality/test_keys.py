"""What a key of a row, an option of a test or of the command turns off, and what still holds with it.

``keys.yml`` has a row for each, with a kernel that breaks what still holds (``BAD = True``) and is otherwise as the key
allows. The rows were written by somebody who had not seen the code. A row runs in this process as in a worker; one with
``command`` is a run of the whole command. ``make matrix`` walks those that are left out here.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

from ci_autotest import config
from ci_autotest.config.known_differences import accepted_by
from ci_autotest.run.messages import Discover, Hello, RunCases
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker.dispatch import Dispatcher
from ci_autotest.values.finding import TOLERATED_BLAMES
from tests.projects import Project

TODAY = datetime.now(timezone.utc).date()
ROWS = yaml.safe_load((Path(__file__).parent / "keys.yml").read_text())
#: What a key turns off by its name, as the documentation says: no run finds these.
BY_NAME = {
    "A13": "a wrong value that is accepted leaves nothing for a probe to tell; a note says so",
    "A18": "a row without `candidate` accepts the value on every candidate",
    "A22": "a row without `dtype` holds for integers too",
    "A35": "a test's own tolerance holds for integers too",
    "A63": "of a case that calls a forward-only kernel only values are compared; the report counts such cases",
    "A70": "what layouts a gradient has that a body does not reduce, a case draws",
    "A79": "the guarded cases of seed 0 have sizes at which this kernel does not write beside its memory",
    "A86": "one set of sizes has no boundary in a default run; `sizes` in the report says so",
    "A40": "one case has no probe; its calls show an address that is used again by chance only",
    "A50": "a kernel's own exception is a misalignment, which a mark accepts",
    "A52": "a mark accepts whatever is misaligned in its test, but no lost process",
    "A85": "a call that is wrong at a larger size is in `speed` of the report and no finding",
    "A95": "with `--workers 0` nothing is confirmed, and a note says so",
    "A97": "this shard of one test has the windows that show it by chance only; the other one finds it",
    "A100": "findings of a baseline go by candidate, operator and kind",
    "A101": "findings of a baseline go by candidate, operator and kind, and a wrong value leaves no case to probe",
    "A115": "three of sixty cases are special; their probes have too few finite values to tell",
    "A113": "an accepted mutation accepts writes beside the input too; `writes` does not",
    "A114": "an accepted mutation accepts every change of an earlier value; `writes` does not",
    "A116": "gradients of ones hide a gradient whose rows sum to zero",
    "A87": "gradients of parameters with other names are not compared",
    "A88": "the state of a class with other names is copied for each case",
}
#: A strict run compares bits, whatever a tolerance says.
LOUD = {"A27"}
#: Rows that CI walks beside one in eight: what was missed before the comparison went on after an accepted difference.
ALWAYS = {
    "A01",
    "A02",
    "A03",
    "A05",
    "A11",
    "A14",
    "A15",
    "A20",
    "A36",
    "A60",
    "A64",
    "A67",
    "A71",
    "A117",
    "A118",
    "B40",
    "B41",
}


def rows(*, command):
    """Return the ids of the rows of one way to run, of which CI walks a part."""
    names = [name for name, row in ROWS.items() if bool(row.get("command")) is command and name not in BY_NAME]
    always = set() if command else {*names[::8], *ALWAYS}
    return [name if name in always else pytest.param(name, marks=pytest.mark.matrix) for name in names]


def write(name, folder, *, is_bad):
    for file, text in ROWS[name]["files"].items():
        (folder / file).write_text(text if is_bad else text.replace("BAD = True", "BAD = False"))


def shown_here(name, folder, *, is_bad):
    """Return candidate, operator and kind of what twenty cases of each test show and no row accepts."""
    write(name, folder, is_bad=is_bad)
    row = config.read(folder / "autotest.yml")
    dispatcher = Dispatcher(ProgressBeacon.create(), lambda _: None)
    dispatcher.answer(
        Hello(
            root=str(folder), folders=[str(folder)], seed=0, strictness=row.strictness, reference_device="cpu",
            candidates=list(row.candidates), tolerances=list(row.tolerances), known=list(row.known),
            shapes=config.shapes_of(row.candidates),
        )
    )  # fmt: skip
    found = []
    for test in dispatcher.answer(Discover("autotest_a.py", cases=row.cases)).tests:
        cases = list(range(max(test.n or row.cases, test.examples + test.grid)))
        names = [candidate.name for candidate in row.candidates]
        found += dispatcher.answer(RunCases(test=test, cases=cases, candidates=names)).failures
    for backend in dispatcher.worker_context.backends.values():
        backend.close()
    return {
        (failure.candidate, failure.verdict.operator, failure.verdict.kind)
        for failure in found
        if not accepted_by(row.known, failure.candidate, TODAY)(failure.verdict)
        and failure.verdict.outcome == "misaligned"
        and failure.verdict.blame not in TOLERATED_BLAMES
    }


def shown_by_command(name, folder, *, is_bad):
    """Return the same of a run of the command."""
    write(name, folder, is_bad=is_bad)
    project = Project(folder)
    project.run(*(ROWS[name].get("args") or []))
    report = json.loads((folder / "autotest-report" / "report.json").read_text())
    return {
        (item["candidate"], item["operator"], item["kind"])
        for item in report["findings"]
        if item["known"] is None and item["outcome"] != "flaky" and item["blame"] not in TOLERATED_BLAMES
    }


def is_meant(name, shown):
    """Whether what was shown is the row's fault."""
    row, (candidate, operator, kind) = ROWS[name], shown
    return (
        row["operator"] in {"", operator}
        and (not row["kinds"] or kind in row["kinds"])
        and row.get("candidate", candidate) == candidate
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder whose modules are imported anew, though those of another row have their names."""
    before = {*sys.modules}
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in {*sys.modules} - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("name", rows(command=False))
def test_key__fault_in_what_still_holds__is_found(name, folder):
    assert any(is_meant(name, shown) for shown in shown_here(name, folder, is_bad=True))


@pytest.mark.parametrize("name", rows(command=False))
def test_key__kernel_that_is_as_the_key_allows__is_quiet(name, folder):
    assert bool(shown_here(name, folder, is_bad=False)) is (name in LOUD)


@pytest.mark.parametrize("name", rows(command=True))
def test_option__fault_in_what_still_holds__is_found(name, tmp_path):
    assert any(is_meant(name, shown) for shown in shown_by_command(name, tmp_path, is_bad=True))


def test_rows__are_at_least_forty_and_say_what_they_turn_off():
    assert len(ROWS) >= 40
    assert all(row["key"] and row["turns_off"] and row["still_holds"] for row in ROWS.values())
