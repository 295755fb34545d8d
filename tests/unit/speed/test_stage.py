"""The stage that times candidates: it asks only about tests of its candidates, and a fault of its own costs no report."""

from __future__ import annotations

from types import MappingProxyType
from typing import NoReturn

import msgspec
import pytest

from ci_autotest.commands.run import Timing
from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.errors import UnavailableError
from ci_autotest.findings.tools import Allowance, Tools
from ci_autotest.kinds import SubstituteCandidate
from ci_autotest.speed.stage import time_candidates
from ci_autotest.values.result import LOADER_CANDIDATE
from ci_autotest.values.tally import PairTally
from tests.verdict_samples import FIRST, SECOND, done

KERNELS = SubstituteCandidate(name="kernels", replace={"torch.exp": "kernels.exp"}, speed=True)
LOADER = msgspec.structs.replace(SECOND, candidate=LOADER_CANDIDATE)


def timing(error: Exception, said: list[str]) -> Timing:
    def fresh() -> NoReturn:
        raise error

    tools = Tools(fresh, None, None, None, (), 0, MappingProxyType({}), 1.0, allowance=Allowance(None))
    return Timing(tools, 1.1, (), said.append)


def ledger(*tests) -> Ledger:
    held = Ledger([(test, range(3)) for test in tests], ("kernels",))
    held.part(FIRST.id, msgspec.structs.replace(done([]), done=[0, 1, 2], pairs={"kernels": PairTally(aligned=3)}))
    return held


def test_time_candidates__test_of_a_data_loader__is_not_asked_for():
    said: list[str] = []
    note = time_candidates(ledger(FIRST, LOADER), (KERNELS,), timing(RuntimeError("planted"), said), [])
    assert said == ["timing 2 aligned cases on kernels at larger sizes"]
    assert "KeyError" not in note


def test_time_candidates__fault_of_ours__is_a_note():
    note = time_candidates(ledger(FIRST), (KERNELS,), timing(RuntimeError("planted"), []), [])
    assert note == (
        "timing ended early, because of a bug in ci-autotest (RuntimeError: planted). Calls without a result were not "
        "timed; the results of all cases are complete."
    )


def test_time_candidates__no_worker_can_start__ends_the_run_with_its_own_status():
    with pytest.raises(UnavailableError):
        time_candidates(ledger(FIRST), (KERNELS,), timing(UnavailableError("none"), []), [])
