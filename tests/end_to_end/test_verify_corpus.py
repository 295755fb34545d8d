"""The corpus of the verifier: every cheat is rejected and every honest kernel accepted, by values and with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sandboxes import lacking_sandbox
from tests.services import RunningService
from tests.verify_corpus import CHEATS, HONEST, PROBLEMS, VALUES_ONLY
from tests.verify_problems import BENCH

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(lacking_sandbox()), reason=lacking_sandbox())

#: Reference, candidate, whether only values are compared, verdict; by name.
ROWS = {
    **{f"cheat: {name}": (PROBLEMS[problem], text, True, "rejected") for name, problem, text in CHEATS},
    **{f"cheat with gradients: {name}": (PROBLEMS[problem], text, False, "rejected") for name, problem, text in CHEATS},
    **{f"honest: {name}": (PROBLEMS[problem], text, True, "accepted") for name, problem, text in HONEST},
    **{
        f"honest with gradients: {name}": (PROBLEMS[problem], text, False, "accepted")
        for name, problem, text in HONEST
        if name not in VALUES_ONLY
    },
    **{
        f"bench: {problem.name}, {'right' if is_right else 'wrong'}{'' if is_values else ' with gradients'}": (
            problem.reference, problem.candidate(is_right=is_right), is_values, "accepted" if is_right else "rejected",
        )
        for problem in BENCH for is_right in (True, False) for is_values in (True, False)
    },
}  # fmt: skip
#: Those that CI runs.
FEW = (
    "cheat: zeros", "cheat with gradients: by shape", "honest: in place by design", "honest with gradients: two operators",
    "bench: causal attention, right with gradients", "bench: causal attention, wrong",
)  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    running = RunningService(tmp_path_factory.mktemp("corpus"))
    yield running
    running.end()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.heavy if name in FEW else pytest.mark.matrix) for name in ROWS]
)
def test_verdict__of_a_kernel__is_the_right_one(name: str, service: RunningService):
    reference, candidate, is_forward_only, answer = ROWS[name]
    asked = {"reference_text": reference, "candidate_text": candidate, "forward_only": is_forward_only}
    status, verdict = service.post("/verify", asked)
    assert (status, verdict.get("verdict")) == (200, answer), verdict


def test_corpus__enough_of_each():
    assert len(CHEATS) >= 40
    assert len(HONEST) >= 40
    assert len(BENCH) >= 12
    assert set(FEW) <= set(ROWS)
