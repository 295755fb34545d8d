"""Trying on a compiler's layers, and on what ends its worker: against a worker that is a pure function."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from ci_autotest.findings.shrink_driver import ShrinkTrial, shrink, shrink_compiled, shrink_crash, shrink_on_hosts
from ci_autotest.kinds import CompileCandidate
from ci_autotest.program.distribution import Distribution
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec
from ci_autotest.program.recording import Recording
from ci_autotest.program.serialize import decode
from ci_autotest.run.messages import Tried, TryProgram
from ci_autotest.run.process import WorkerLostError
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.shrink.shrinker import ShownTrial
from ci_autotest.values.verdict import Verdict
from tests.verdict_samples import BAD, GOOD, SUSPECT


def recording(size=8):
    spec = TensorSpec("float32", (size,), (1,), 0, size)
    body = (
        Step(PLACEHOLDER, "t0", (spec,), (), "x"),
        Step(CALL_FUNCTION, "torch.exp", (Ref(0),), (), "exp"),
        Step(OUTPUT, "output", (Ref(1),), (), "output"),
    )
    return Recording(Program((), body), {"t0": np.full(size, 0.5, "<f4").tobytes()})


class Worker:
    """Answer programs: ``fails`` of the compiler and of the size; an answer may be that the worker is lost.

    After ``questions`` no more is asked.
    """

    def __init__(self, fails, questions=1000):
        self.fails = fails
        self.questions = questions
        self.asked = []

    @property
    def is_over(self):
        return len(self.asked) >= self.questions

    def ask(self, message):
        assert isinstance(message, TryProgram)
        size = decode(message.program, message.tensors).program.body[0].args[0].shape[0]
        self.asked.append((message.compiler, size))
        found = self.fails(message.compiler, size)
        if found == "lost":
            return WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(0, 0, 0, 0, 0), "")
        return Tried(verdict=BAD if found else GOOD, program=message.program, tensors=message.tensors)


def size_of(shown):
    return shown.recording.program.body[0].args[0].shape[0]


@pytest.mark.parametrize(
    ("options", "fails", "layer", "cheap"),
    [
        pytest.param({}, lambda compiler, size: True, "dynamo", "eager", id="every layer fails"),
        pytest.param(
            {}, lambda compiler, size: compiler != "eager", "aot_autograd", "aot_eager", id="from autograd on"
        ),
        pytest.param({}, lambda compiler, size: not compiler, "inductor", "", id="the last alone"),
        pytest.param(
            {"backend": "aot_eager"}, lambda compiler, size: not compiler, "aot_autograd", "", id="ends earlier"
        ),
    ],
)
def test_shrink_compiled__layer_at_fault__is_named_and_the_cheapest_is_shrunk_on(options, fails, layer, cheap):
    worker = Worker(fails)
    candidate = CompileCandidate(name="compiled", options=options)
    best, named = shrink_compiled(ShownTrial(BAD, recording()), ShrinkTrial(SUSPECT, worker), candidate)
    assert (named, size_of(best)) == (layer, 1)
    used = [compiler for compiler, size in worker.asked if size < 8]
    assert set(used) == {cheap, ""}
    assert worker.asked[-1][0] == ""


def test_shrink_compiled__on_a_device_every_layer_fails__none_is_named():
    # Each of them runs the device's own kernels.
    candidate = CompileCandidate(name="compiled", device="npu", module="torch_npu")
    best, named = shrink_compiled(
        ShownTrial(BAD, recording()), ShrinkTrial(SUSPECT, Worker(lambda compiler, size: True)), candidate
    )
    assert (named, size_of(best)) == ("", 1)


def test_shrink_compiled__smallest_does_not_fail_on_the_real_one__is_shrunk_there():
    worker = Worker(lambda compiler, size: True if compiler == "eager" else not compiler and size >= 3)
    candidate = CompileCandidate(name="compiled")
    best, _ = shrink_compiled(ShownTrial(BAD, recording()), ShrinkTrial(SUSPECT, worker), candidate)
    assert size_of(best) == 3


def test_shrink__worker_is_lost_in_a_trial__keeps_the_smallest_that_does_not_lose_it():
    worker = Worker(lambda compiler, size: "lost" if size < 4 else True)
    assert size_of(shrink(ShownTrial(BAD, recording()), ShrinkTrial(SUSPECT, worker))) == 4


def test_shrink_crash__smallest_that_ends_its_worker__is_found():
    worker = Worker(lambda compiler, size: "lost" if size >= 2 else False)
    crashed = Verdict(outcome="crashed", operator="torch.exp", kind="crash", blame="candidate")
    best = shrink_crash(ShownTrial(crashed, recording()), ShrinkTrial(SUSPECT, worker), None)
    assert size_of(best) == 2
    assert len(worker.asked) <= 80


def test_shrink__budget_is_spent__keeps_the_smallest_so_far_and_asks_no_more():
    worker = Worker(lambda compiler, size: True, questions=1)
    best = shrink(ShownTrial(BAD, recording()), ShrinkTrial(SUSPECT, worker))
    assert (len(worker.asked), size_of(best)) == (1, worker.asked[0][1])


class Hosts(Worker):
    """Answer programs by the number of ranks on which they lie."""

    def ask(self, message):
        ranks = decode(message.program, message.tensors).program.body[0].args[0].distribution.ranks
        self.asked.append(ranks)
        return Tried(verdict=BAD if self.fails(ranks) else GOOD, program=message.program, tensors=message.tensors)


@pytest.mark.parametrize(("fewest", "ranks"), [(2, 2), (3, 4)], ids=["two suffice", "two do not"])
def test_shrink_on_hosts__ranks_of_a_framework__two_are_tried_once_and_no_other_number(fewest, ranks):
    whole, worker = recording(8), Hosts(lambda count: count >= fewest)
    step = whole.program.body[0]
    spec = replace(step.args[0], distribution=Distribution((4,), ("Shard(0)",)))
    lying = replace(whole, program=Program((), (step._replace(args=(spec,)), *whole.program.body[1:])))
    best = shrink_on_hosts(ShownTrial(BAD, lying), ShrinkTrial(SUSPECT, worker, mesh=(4,)))

    assert best.recording.program.body[0].args[0].distribution.ranks == ranks
    # One group after the other, however many trials each has.
    assert [count for count, _ in groupby(worker.asked)] == [4, 2]


def test_shrink__long_program__has_fewer_trials():
    def trials(calls):
        worker = Worker(lambda compiler, size: False)
        steps = tuple(Step(CALL_FUNCTION, "torch.exp", (Ref(i),), (), "exp") for i in range(calls))
        start = recording()
        output = Step(OUTPUT, "output", (Ref(calls),), (), "output")
        shown = ShownTrial(BAD, replace(start, program=Program((), (start.program.body[0], *steps, output))))
        shrink(shown, ShrinkTrial(SUSPECT, worker, most_calls=100))
        return len(worker.asked)

    assert (trials(100), trials(50), trials(25)) == (1, 2, 4)
