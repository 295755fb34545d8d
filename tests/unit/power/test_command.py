"""What `power` concludes from the loss of a worker: a mutant's own crash, or a kill by the system."""

from __future__ import annotations

import pytest

from ci_autotest.power.command import PowerRequest, _Trial, exit_code
from ci_autotest.run.messages import TryMutants
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.power import EXPLAINING, UnscoredReason
from tests.verdict_samples import TEST

MESSAGE = TryMutants(test=TEST, cases=2, seed=0, mutants=4)
MUTANT, EXPLANATION, REFERENCE = Spot(0, 3, 0, 0, 0), Spot(0, 3, 0, EXPLAINING, 0), Spot(0, -1, 0, 0, 0)


def trial() -> _Trial:
    return _Trial(None, PowerRequest(None, 4), 0, None)


def lost(spot: Spot, *, is_killed: bool = False) -> WorkerLostError:
    return WorkerLostError("ended by signal 9 (SIGKILL)", spot, "", is_killed=is_killed)


@pytest.mark.parametrize("spot", [MUTANT, EXPLANATION, REFERENCE], ids=["mutant", "explanation", "reference"])
def test_power__system_kills_the_worker_again_and_again__the_test_is_lost_and_no_mutant_noticed(spot: Spot):
    own, killed = trial(), {}
    again = [own._ended(MESSAGE, lost(spot, is_killed=True), killed) for _ in range(4)]

    (found,) = own.result().tests
    assert again == [MESSAGE, MESSAGE, MESSAGE, None]
    assert (found.unscored, found.why, found.mutants) == (
        UnscoredReason.LOST, "the system killed its worker 4 times. Free memory, or give fewer --workers", (),
    )  # fmt: skip
    assert exit_code(own.result(), ()) == 1


def test_power__mutant_crashes__is_noticed_and_the_test_goes_on():
    again = trial()._ended(MESSAGE, lost(MUTANT), {})

    assert again is not None
    assert again.lost == {3: "crash"}
