"""A finding that is written down says what its repro came to when it was run alone, on its page too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.judgement import Verdict
from ci_autotest.run.lost import WorkerLostError
from ci_autotest.run.place import Spot
from ci_autotest.session.crashes import crash
from ci_autotest.session.made import Allowance, Workshop, with_program, written
from tests import report_samples as samples
from tests.unit.session.test_trying import SUSPECT
from tests.unit.test_telling import recorded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Ended:
    """A nursery in which every script ends with one status."""

    def __init__(self, status: int | None) -> None:
        self._status = status

    def run_script(self, _script: Path, _paths: Sequence[str], _timeout_s: float) -> int | None:
        return self._status


@pytest.mark.parametrize(
    ("status", "repros_s", "said"),
    [
        (1, 300.0, ""),
        (0, 300.0, "repro not verified: run alone it ended with status 0"),
        (None, 300.0, "repro not verified: it was not run to its end in the time left"),
        (1, 0.0, "repro not verified: it was not run to its end in the time left"),
    ],
    ids=["shows it", "does not", "takes too long", "nothing left"],
)
def test_written__repro_run_alone__message_and_page_say_what_it_came_to(
    status: int | None, repros_s: float, said: str, tmp_path: Path
):
    nursery: Any = Ended(status)
    workshop = Workshop(None, nursery, None, tmp_path, (), 0, {}, allowance=Allowance(repros_s=repros_s))  # type: ignore[arg-type]
    recording = recorded(lambda: torch.exp(random_tensor(ndim=1, dim0=3, requires_grad=False)))
    finding = written(with_program(samples.finding(), recording, workshop), recording, workshop)
    page = (tmp_path / "findings" / finding.id / "README.md").read_text("utf-8")
    assert finding.repro_verified is not bool(said)
    assert finding.message.splitlines()[-1].strip() == said if said else "not verified" not in finding.message
    assert (said in page) if said else ("not verified" not in page)


@pytest.mark.parametrize(
    ("verdict", "reference", "said"),
    [
        (Verdict(outcome="crashed", target="its test"), "unknown", "the reference was not run alone"),
        (Verdict(outcome="not_run", operator="torch.exp", target="torch.exp"), "returns",
         "the reference runs the same program to its end"),
    ],
    ids=["nobody asked", "recorded alone"],
)  # fmt: skip
def test_crash__says_of_the_reference_what_was_asked_of_it(verdict: Verdict, reference: str, said: str, tmp_path: Path):
    workshop = Workshop(None, None, None, tmp_path, (), 0, {})  # type: ignore[arg-type]
    lost = WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(0, 0, -1, 0, 1), "")
    finding = crash(SUSPECT, verdict, lost, workshop)
    assert (finding.reference_seen, finding.oracle) == (reference, said)
    assert f"blame: candidate; {said}" in finding.message
