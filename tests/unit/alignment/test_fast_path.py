"""What a host tells of a batch, held against the reference as bytes: each fault must be left to who looks closer."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from ci_autotest.alignment.fast_path import is_surely_aligned, surely_aligned_by_bytes
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.framework.mapping.translation import Translated
from ci_autotest.backends.framework.request import HostMessage
from ci_autotest.backends.framework.response import fill, readers_of
from ci_autotest.backends.framework.response_trace import ResponseTrace
from ci_autotest.backends.trace import Attempt
from ci_autotest.host.frameworks.torch_like import TorchLike
from ci_autotest.host.loop import RequestHandler
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec

DATA = [1.0, -2.0, 3.0]


def attempt_of(data):
    """Return torch's square of a leaf, with its gradient."""
    spec = TensorSpec("float32", (len(data),), (1,), 0, len(data), requires_grad=True)
    steps = (Step(PLACEHOLDER, "t0", (spec,)), Step(CALL_FUNCTION, "torch.square", (Ref(0),)))
    program = Program((), (*steps, Step(OUTPUT, "output", (Ref(1),))), (replace(spec, requires_grad=False),))
    sources, cotangents = {"t0": torch.tensor(data)}, {0: torch.ones(len(data))}
    backend = TorchBackend()
    trace = backend.run(program, sources)
    backend.backward(program, trace, cotangents)
    return Attempt(program, trace, sources, cotangents, (), "ordinary", None)


class Frames(list):
    """Where a host's answers go."""

    def send(self, head, buffers=()):
        self.append((head, list(buffers)))


def told_of(attempts, bend=lambda answer, buffers: None):
    """Return attempts with the traces of what a host of torch tells of them, the last one's bent."""
    message, traces = HostMessage(), []
    for number, attempt in enumerate(attempts):
        trace = ResponseTrace(attempt.program, attempt.trace)
        trace.translated = Translated(attempt.program, range(len(attempt.program.steps)))
        message.add(trace, attempt.sources, attempt.cotangents, number=number)
        traces.append(trace)
    frames = Frames()
    work = RequestHandler(TorchLike("torch", "cpu"), frames, memoryview(bytearray(16)).cast("q"))
    work.answer(json.loads(msgspec.json.encode(message.head)), message.buffers)
    ((head, buffers),) = frames
    answers = json.loads(head)
    buffers = [bytearray(each) for each in buffers]
    bend(answers[-1], buffers)
    for trace, reader in zip(traces, readers_of(json.dumps(answers).encode(), buffers, lambda _: []), strict=True):
        trace.reader = reader
    return attempts, traces


def changed(where, number):
    """Return what writes a number over the last element of the value or the gradient."""

    def bend(answer, buffers):
        entry = answer["values"][1] if where == "value" else dict(map(tuple, answer["gradients"]))[0]
        np.frombuffer(buffers[entry[-1]], np.float32)[-1] = number

    return bend


def put(field, value):
    return lambda answer, _: answer.__setitem__(field, value)


def of_value(place, value):
    return lambda answer, _: answer["values"][1].__setitem__(place, value)


def test_bytes__equal__are_all_of_the_batch():
    assert surely_aligned_by_bytes(*told_of([attempt_of(DATA), attempt_of([5.0])]), Rules()) == {0, 1}


@pytest.mark.parametrize("where", ["value", "gradient"])
@pytest.mark.parametrize(
    ("rules", "number", "is_aligned"),
    [
        (Rules(), {"value": 9.00001, "gradient": 6.000005}, True),
        (Rules(), {"value": 9.001, "gradient": 6.001}, False),
        (Rules(rtol=0.1, atol=0.0), {"value": 9.5, "gradient": 6.3}, True),
        (Rules(strictness="bitwise"), {"value": 9.00001, "gradient": 6.000005}, False),
        (Rules(), {"value": float("nan"), "gradient": float("nan")}, False),
        (Rules(), {"value": float("inf"), "gradient": -float("inf")}, False),
    ],
    ids=["within tolerance", "outside", "within the test's own", "bitwise", "NaN", "infinite"],
)
def test_bytes__element_differs__goes_by_the_tolerance(where, rules, number, is_aligned):
    told = told_of([attempt_of(DATA), attempt_of([1.0]), attempt_of(DATA)], changed(where, number[where]))
    assert surely_aligned_by_bytes(*told, rules) == ({0, 1, 2} if is_aligned else {0, 1})


def test_bytes__infinite_on_the_reference_only__is_left_to_a_closer_look():
    assert surely_aligned_by_bytes(*told_of([attempt_of([1e30])], changed("value", 1.0)), Rules()) == set()


FAULTS = {
    "dtype": of_value(1, "float64"),
    "shape": of_value(2, [1, 3]),
    "requires_grad": of_value(3, False),
    "is_leaf": of_value(4, True),
    "buffer that is none": of_value(5, 99),
    "digest": of_value(5, ["00", 0]),
    "no tensor": lambda answer, _: answer["values"].__setitem__(1, ["plain", 1]),
    "not told": lambda answer, _: answer["values"].__delitem__(slice(1, None)),
    "output that is something": lambda answer, _: answer["values"].__setitem__(2, ["plain", 0]),
    "elements left out": lambda answer, buffers: buffers[answer["values"][1][-1]].__delitem__(slice(4)),
    "gradient is none": lambda answer, _: answer["gradients"][0].__setitem__(1, None),
    "gradient is missing": put("gradients", []),
    "failure": put("failure", [1, "RuntimeError", "broken"]),
    "backward failure": put("backward_failure", ["RuntimeError", "broken"]),
    "lacking": put("lacking", ["no_counterpart", "it has no such thing"]),
    "cotangent written to": put("written", [[0, ["tensor", "float32", [3], False, True, 0]]]),
}


@pytest.mark.parametrize("bend", FAULTS.values(), ids=FAULTS)
def test_bytes__fault_in_what_is_told__costs_that_case_alone(bend):
    told = told_of([attempt_of(DATA), attempt_of([1.0]), attempt_of(DATA)], bend)
    assert surely_aligned_by_bytes(*told, Rules()) == {0, 1}


def test_bytes__value_of_the_reference_was_written_to__is_left_to_a_closer_look():
    attempt = attempt_of(DATA)
    attempt.trace.values[1].detach().add_(0)
    assert surely_aligned_by_bytes(*told_of([attempt]), Rules()) == set()


@pytest.mark.parametrize("number", [9.0, 9.00001, 9.001], ids=str)
def test_bytes__says_what_a_look_at_tensors_says(number):
    told = told_of([attempt_of(DATA)], changed("value", number))
    sure = surely_aligned_by_bytes(*told, Rules())
    (attempt,), (trace,) = told
    fill(trace, trace.reader, trace.translated.moved, attempt.trace)
    trace.gradients = {
        key: trace.reader.tensor(entry).detach() for key, entry in trace.reader.answer.gradients if entry is not None
    }
    assert bool(sure) is is_surely_aligned(attempt.program, trace, attempt.trace, Rules())


def test_bytes__values_are_not_shown__is_left_to_a_closer_look():
    told = told_of([attempt_of(DATA), attempt_of(DATA)])
    told[1][1].shown = frozenset({0})
    assert surely_aligned_by_bytes(*told, Rules()) == {0}
