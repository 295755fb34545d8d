"""The calls of a worker as one program: in the order of its journal, and on the same inputs where it repeats."""

from __future__ import annotations

import pytest

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import differentiate
from ci_autotest.alignment.probe import probe_of
from ci_autotest.alignment.recordings import to_live, to_recording, with_expected
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.findings.stateful import OF_PROBES, _called, _part
from ci_autotest.program.check import check_program
from ci_autotest.program.ir import Ref
from ci_autotest.run import messages
from ci_autotest.values.finding import Location
from ci_autotest.values.schedule import CandidateCall, Passes, RowName
from tests.engine import record

TEST = messages.TestInfo(id="test.py::exp", name="exp", file="test.py", n=20, location=Location(file="test.py", line=1))
FORWARD, BACKWARD, BOTH = Passes


def exp():
    return torch.exp(random_tensor(2, 3, 4))


def linear():
    return torch.nn.Linear(in_features=4, out_features=2)(random_tensor(2, 3, 4))


def tanh_of_linear():
    return torch.tanh(torch.nn.Linear(in_features=4, out_features=2)(random_tensor(2, 3, 4)))


def multiplied():
    value = torch.exp(random_tensor(2, 3, 4))
    return value * random_tensor(2, 3, 4)


def recorded(body, *, probe: bool = False):
    attempt = record(body)
    differentiate(attempt, TorchBackend())
    found = probe_of(attempt, TorchBackend(), lambda _: None) if probe else attempt
    assert not isinstance(found, str), found
    return with_expected(to_recording(live_of(found)), live_of(found), TorchBackend())


def targets(body, calls, *, probe: bool = False):
    parts = {((0, case), False): _part(recorded(body)) for case in (3, 4)}
    if probe:
        parts[(0, 3), True] = _part(recorded(body, probe=True))
    made = [CandidateCall(0, 0, case, 0, row, passes) for case, row, passes in calls]
    found = _called(made, [TEST], parts, recorded(body))
    program = found.recording.program
    check_program(program)
    live = to_live(found.recording)
    assert TorchBackend().run(live.program, live.sources).failure is None
    for at, (_, call, index) in found.origins.items():
        step = parts[call.place, call.row in OF_PROBES].program.steps[index]
        assert step.op == "placeholder" or step.target == program.steps[at].target
    return [(step.target, *(arg.index for arg in step.args[:1] if isinstance(arg, Ref))) for _, step in program.calls]


def test_called__batch__has_all_forward_passes_first():
    calls = [
        (3, RowName.CASE, FORWARD),
        (4, RowName.CASE, FORWARD),
        (3, RowName.CASE, BACKWARD),
        (4, RowName.CASE, BACKWARD),
    ]
    grad = "torch.autograd.grad"
    assert [name for name, *_ in targets(exp, calls)] == ["torch.exp", "torch.exp", grad, grad]


def test_called__host__goes_back_after_each_case():
    calls = [(3, RowName.CASE, BOTH), (4, RowName.CASE, BOTH)]
    assert [name for name, *_ in targets(exp, calls)] == ["torch.exp", "torch.autograd.grad"] * 2


@pytest.mark.parametrize(("row", "is_same"), [(RowName.REPEAT, True), (RowName.LOOK, False), (RowName.CASE, False)])
def test_called__second_call__has_the_same_inputs_if_it_is_a_repeat(row: RowName, is_same: bool):
    first, second = targets(exp, [(3, RowName.CASE, FORWARD), (3, row, FORWARD)])
    assert (first == second) is is_same


def test_called__probe_and_its_last_calls_again__are_made_on_its_inputs():
    once = targets(linear, [(3, RowName.SEQUENCE, FORWARD)], probe=True)
    twice = targets(linear, [(3, RowName.SEQUENCE, FORWARD), (3, RowName.REPEAT_OF_SEQUENCE, FORWARD)], probe=True)
    assert twice[: len(once)] == once
    again = twice[len(once) :]
    assert again
    assert {name for name, *_ in again} == {"torch.nn.Linear"}
    assert [at for name, at in again] == [0] * len(again)


def test_called__journal_that_has_lost_its_beginning__has_what_is_left():
    assert [name for name, *_ in targets(exp, [(3, RowName.CASE, BACKWARD), (3, RowName.REPEAT, FORWARD)])] == [
        "torch.exp"
    ]


def test_called__modules_of_two_cases__each_step_is_still_that_of_its_case():
    # Checked by ``targets``, which compares each step with the one that it comes from.
    calls = [
        (3, RowName.CASE, FORWARD),
        (4, RowName.CASE, FORWARD),
        (3, RowName.CASE, BACKWARD),
        (3, RowName.REPEAT, BOTH),
    ]
    names = [name for name, *_ in targets(tanh_of_linear, calls)]
    assert names.count("torch.tanh") == 3


def test_called__call_before_the_last_input__is_not_made_again_in_a_repeat():
    names = [name for name, *_ in targets(multiplied, [(3, RowName.CASE, FORWARD), (3, RowName.REPEAT, FORWARD)])]
    assert names == ["torch.exp", "operator.mul", "operator.mul"]
