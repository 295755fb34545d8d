"""A refusal is a step: tried on every side, compared by whether it is given, shown with a program that runs by itself."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch as real

import ci_autotest.suite.autograd as shipped
from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender, judge_refusal, refusal_of
from ci_autotest.alignment.recordings import to_recording
from ci_autotest.backends.compilers.torch_compile import CompileBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.record.declaration import declaration_of
from ci_autotest.report.finding_message import About, finding_of
from ci_autotest.report.finding_program import display_program
from ci_autotest.values.finding import counts_against
from tests.engine import RULES, judged, record, substitute

if TYPE_CHECKING:
    from pathlib import Path

    from ci_autotest.alignment.verdict import Judged
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt

#: The tests of refusals; others of the family only calculate.
DECLARED = {
    name: found
    for name, value in vars(shipped).items()
    if (found := declaration_of(value)) is not None and found.raises
}


def attempted(name: str) -> Attempt:
    declared = DECLARED[name]
    return record(declared.body, test=name, raises=declared.raises, match=declared.match)


def mismatched() -> Any:
    x = random_tensor(2, 2, 3)
    return torch.matmul(x, x)


def expected() -> Any:
    x = random_tensor(2, 2, 3)
    with pytest.raises(RuntimeError, match="multiplied"):
        torch.matmul(x, x)
    return torch.matmul(x, x.t())


def caught() -> Any:
    x = random_tensor(2, 2, 3)
    try:
        return torch.matmul(x, x)
    except RuntimeError:
        return torch.matmul(x, x.t())


def any_shapes(a: Any, b: Any) -> Any:
    """Matmul that leaves out what does not fit."""
    n = min(a.shape[1], b.shape[0])
    return real.Tensor.matmul(a[:, :n], b[:n])


def other_class(_a: Any, _b: Any) -> Any:
    message = "shapes"
    raise ValueError(message)


def unwritten(_a: Any, _b: Any) -> Any:
    message = "mykernels has no kernel of matmul yet"
    raise NotImplementedError(message)


class Accepting(TorchBackend):
    """A candidate that carries out what torch refuses to differentiate."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with real.autograd.graph.allow_mutation_on_saved_tensors():
            return super().run(*args, **kwargs)


def counts(found: Judged) -> bool:
    return counts_against(finding_of(found.verdict, About("kernels", "a.py::test", "test", 0, 0)))


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(
    "backend",
    [TorchBackend(), FxBackend(""), CompileBackend({"backend": "aot_eager"})],
    ids=["torch", "fx", "torch.compile"],
)
@pytest.mark.parametrize("name", DECLARED)
def test_suite__what_autograd_refuses__is_refused_by_both_sides(name: str, backend: Backend):
    assert judged(attempted(name), backend).verdict.outcome == "aligned"


def test_suite__value_that_backward_needs__accepted__fails_the_run():
    found = judged(attempted("value_that_backward_needs_is_changed"), Accepting())
    assert (found.verdict.kind, found.verdict.operator) == ("leniency", "torch.Tensor.backward")
    assert (found.verdict.accumulated, counts(found)) == (False, True)


def test_suite__counted__has_the_four_programs_of_the_article():
    assert sorted(DECLARED) == [
        "backward_is_run_twice", "leaf_is_changed", "leaf_is_moved_into_the_graph",
        "value_that_backward_needs_is_changed",
    ]  # fmt: skip


DECLARES = {"raises": (RuntimeError,), "match": "multiplied"}


@pytest.mark.parametrize(
    ("body", "declared", "fails"),
    [
        pytest.param(mismatched, DECLARES, True, id="raises"),
        pytest.param(expected, {}, True, id="pytest.raises"),
        pytest.param(caught, {}, False, id="caught"),
    ],
)
def test_judge__candidate_accepts__is_leniency_with_its_program(body: Any, declared: Any, fails: bool):
    attempt = record(body, **declared)
    assert judged(attempt, TorchBackend()).verdict.outcome == "aligned"
    found = judged(attempt, substitute(matmul=any_shapes))
    assert (found.verdict.outcome, found.verdict.kind, found.verdict.operator) == (
        "misaligned", "leniency", "torch.matmul",
    )  # fmt: skip
    assert counts(found) is fails
    assert [step.target for _, step in found.live.program.calls] == ["torch.matmul"]


@pytest.mark.parametrize("body", [expected, caught])
@pytest.mark.parametrize("backend", [FxBackend(""), CompileBackend({"backend": "aot_eager"})], ids=["fx", "compiled"])
def test_judge__body_goes_on_after_a_refusal__is_compared_as_one_function(body: Any, backend: Backend):
    assert judged(record(body), backend).verdict.outcome == "aligned"


def test_judge__value_after_a_refusal_is_wrong__is_found():
    found = judged(record(caught), substitute(t=lambda x: real.Tensor.t(x) + 1))
    assert (found.verdict.kind, found.verdict.operator) == ("value", "torch.t")


def test_judge__refused_by_another_class_of_the_users__is_aligned():
    assert judged(record(expected), substitute(matmul=other_class, t=real.Tensor.t)).verdict.kind == "error"
    assert judged(record(mismatched, **DECLARES), substitute(matmul=other_class)).verdict.outcome == "aligned"


class OtherClass(TorchBackend):
    def __init__(self) -> None:
        super().__init__()
        self.steps._functions["torch.matmul"] = other_class


def test_judge__refused_by_another_class_of_torchs__is_an_error():
    found = judged(record(mismatched, **DECLARES), OtherClass()).verdict
    assert (found.outcome, found.kind) == ("misaligned", "error")
    assert (found.misalignment.candidate, found.misalignment.reference) == ("raises ValueError", "raises RuntimeError")


def test_judge__kernel_that_is_not_written__refuses_nothing():
    found = judged(record(mismatched, **DECLARES), substitute(matmul=unwritten)).verdict
    assert found.outcome == "unsupported"
    assert found.oracle.startswith("NotImplementedError: mykernels has no kernel of matmul yet")


def test_leniency__of_a_rejected_attempt__is_reported_and_no_case():
    attempt = record(mismatched)
    assert refusal_of(attempt).startswith("torch.matmul: RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    found = judge_refusal(attempt, Contender(substitute(matmul=any_shapes), RULES))
    assert found is not None
    assert (found.verdict.is_no_case, counts(found)) == (True, False)


#: Of a large input any elements will do.


@pytest.mark.parametrize("name", DECLARED)
def test_display__what_is_refused__runs_and_is_read_back(name: str, tmp_path: Path):
    attempt = attempted(name)
    live = judged(attempt, TorchBackend()).live
    recording = to_recording(live)
    assert decode(encode_program(recording), encode_tensors(recording)).program == recording.program
    verdict = judged(attempt, TorchBackend()).verdict
    shown = display_program(recording, finding_of(verdict, About("kernels", "a.py::test", "test", 0, 0)))
    (tmp_path / "tensors.safetensors").write_bytes(encode_tensors(recording))
    ended = subprocess.run(
        [sys.executable, "-c", f"{shown}\nassert refusal == 'RuntimeError'"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{shown}\n{ended.stderr}"
