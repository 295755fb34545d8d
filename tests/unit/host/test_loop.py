"""What a host does with the jobs of a message: one wait for all, errors that come late, and which job is in flight."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
import torch

from ci_autotest.backends.framework.mapping.translation import Translated
from ci_autotest.backends.framework.request import HostMessage
from ci_autotest.backends.framework.response_trace import ResponseTrace
from ci_autotest.host.frameworks.torch_like import TorchLike
from ci_autotest.host.loop import NOWHERE, WAITING_BYTES, RequestHandler
from ci_autotest.program.ir import CALL_FUNCTION, OUTPUT, PLACEHOLDER, Program, Ref, Step, TensorSpec


class Late(TorchLike):
    """Torch as a framework that computes in threads of its own: elements come when it is waited for, errors later."""

    def __init__(self):
        super().__init__("torch", "cpu")
        self.asked: list[tuple[Any, np.ndarray]] = []
        self.waits = self.reads = 0
        self.late: list[str] = []

    def begin_read(self, tensor):
        self.reads += 1
        memory = np.full(tuple(tensor.shape), 77, str(tensor.dtype).removeprefix("torch."))
        self.asked.append((tensor.detach().clone(), memory))
        return memory

    def end_read(self, tensor, memory):
        return memory

    def array(self, tensor):
        self.synchronize()
        return super().array(tensor)

    def function(self, target):
        if target == "torch.breaks_later":
            return lambda value: (self.late.append("broken"), value.clone())[1]
        self.raise_what_is_late()  # at the next call of anything, as well
        return super().function(target)

    def synchronize(self):
        self.waits += 1
        asked, self.asked = self.asked, []
        self.raise_what_is_late()
        for value, memory in asked:
            memory[...] = value.numpy()

    def raise_what_is_late(self):
        if self.late:
            raise RuntimeError(self.late.pop())


class Lines:
    """Where answers go."""

    def __init__(self):
        self.frames: list[tuple[list[dict[str, Any]], list[bytes]]] = []

    def send(self, head, buffers=()):
        self.frames.append((json.loads(head), list(buffers)))

    def told(self):
        return [(answer, frame[1]) for frame in self.frames for answer in frame[0]]


class Served(NamedTuple):
    framework: Any
    lines: Lines
    place: memoryview
    work: RequestHandler


def served(framework):
    lines, place = Lines(), memoryview(bytearray(16)).cast("q")
    return Served(framework, lines, place, RequestHandler(framework, lines, place))


def message(*targets, size=3, has_backward=True):
    """Return the message of jobs that each call a function of 1, 2, 3 and so on times the job's number and one."""
    made = HostMessage()
    for number, target in enumerate(targets):
        data = torch.arange(1, size + 1, dtype=torch.float32) * (number + 1)
        spec = TensorSpec("float32", (size,), (1,), 0, size, requires_grad=True)
        body = (
            Step(PLACEHOLDER, "t0", (spec,), (), "x"),
            Step(CALL_FUNCTION, target, (Ref(0),)),
            Step(OUTPUT, "output", (Ref(1),)),
        )
        trace = ResponseTrace(Program((), body), None)
        trace.translated = Translated(Program((), body), range(len(body)))
        made.add(trace, {"t0": data}, {0: torch.ones(size)} if has_backward else None, number=number)
    return plain(made.head), made.buffers


def plain(head):
    return json.loads(msgspec.json.encode(head))


def said(answer, buffers):
    """Return the failure, or the result and the gradient of the leaf."""
    if answer["failure"] or answer["backward_failure"]:
        return answer["failure"] or answer["backward_failure"]

    def array(entry):
        return np.frombuffer(buffers[entry[-1]], np.float32).tolist()

    return array(answer["values"][1]), array(dict(map(tuple, answer["gradients"]))[0])


SQUARES = [
    ([1.0, 4.0, 9.0], [2.0, 4.0, 6.0]),
    ([4.0, 16.0, 36.0], [4.0, 8.0, 12.0]),
    ([9.0, 36.0, 81.0], [6.0, 12.0, 18.0]),
]


@pytest.mark.parametrize("framework", [Late(), TorchLike("torch", "cpu")], ids=["late", "at once"])
def test_answer__batch_and_one_by_one__say_the_same(framework):
    together, alone = served(framework), served(framework)
    made, buffers = message("torch.square", "torch.square", "torch.square")
    together.work.answer(made, buffers)
    for each in made["jobs"]:
        alone.work.answer({**made, "jobs": [each]}, buffers)
    assert [said(*each) for each in together.lines.told()] == SQUARES
    assert [said(*each) for each in alone.lines.told()] == SQUARES
    assert (len(together.lines.frames), len(alone.lines.frames)) == (1, 3)


def test_answer__late_framework__is_waited_for_once_in_a_batch():
    found = served(Late())
    found.work.answer(*message(*["torch.square"] * 3))
    assert found.framework.waits == 1


@pytest.mark.parametrize("at", [0, 1, 2])
def test_answer__error_that_comes_late__is_that_of_its_own_job(at):
    found = served(Late())
    targets = ["torch.square"] * 3
    targets[at] = "torch.breaks_later"
    found.work.answer(*message(*targets))
    told = [said(*each) for each in found.lines.told()]
    assert [each for i, each in enumerate(told) if i != at] == [each for i, each in enumerate(SQUARES) if i != at]
    assert told[at] == [1, "RuntimeError", "broken"]


def test_answer__tensors_are_large__are_not_held_until_the_end():
    found = served(Late())
    size = WAITING_BYTES // 4 // 3  # an input, a result, a gradient and what was put in
    made, buffers = message("torch.square", "torch.square", size=size)
    found.work.answer(made, buffers)
    assert [len(frame[0]) for frame in found.lines.frames] == [1, 1]


def test_answer__while_a_job_runs__its_number_and_step_are_told():
    class Watched(TorchLike):
        def function(self, target):
            seen.append(tuple(found.place))
            return super().function(target)

    seen: list[tuple[int, ...]] = []
    found = served(Watched("torch", "cpu"))
    found.work.answer(*message("torch.square", "torch.abs"))
    assert seen == [(0, 1), (1, 1)]
    assert tuple(found.place) == (NOWHERE, NOWHERE)


def test_answer__backward_pass_asked_for__is_that_of_the_last_job():
    found = served(TorchLike("torch", "cpu"))
    made, buffers = message("torch.abs", "torch.square", has_backward=False)
    found.work.answer(made, buffers)
    cotangents = {"0": ["float32", [3], len(buffers)]}
    found.work.answer({"backward": {"cotangents": cotangents}}, [*buffers, np.ones(3, np.float32).tobytes()])
    answer, sent = found.lines.told()[-1]
    (key, gradient), *_ = answer["gradients"]
    assert (key, np.frombuffer(sent[gradient[-1]], np.float32).tolist()) == (0, [4.0, 8.0, 12.0])


def test_answer__backward_pass_writes_to_what_was_put_in__is_told():
    class Greedy(TorchLike):
        def gradients(self, outputs, weights, inputs):
            found = super().gradients(outputs, weights, inputs)
            weights[0].mul_(0)
            return found

    found = served(Greedy("torch", "cpu"))
    found.work.answer(*message("torch.square"))
    ((answer, sent),) = found.lines.told()
    ((position, entry),) = answer["written"]
    assert (position, np.frombuffer(sent[entry[-1]], np.float32).tolist()) == (0, [0.0, 0.0, 0.0])


class Sharing(Late):
    """One whose leaves are in the memory that they are made of."""

    def shares(self, spec):
        return spec.dtype == "float32"


def test_answer__leaves_are_in_memory_that_is_held__they_are_not_copied():
    held, copied = served(Sharing()), served(Late())
    for found in (held, copied):
        found.work.answer(*message("torch.square"))
    # The result and the gradient; without, the leaf and what was put in as well.
    assert (held.framework.reads, copied.framework.reads) == (2, 4)
    assert held.lines.frames == copied.lines.frames


def test_answer__function_writes_to_a_leaf_that_is_held__is_told():
    class Greedy(Sharing):
        def function(self, target):
            return lambda value: (value.detach().mul_(2), value.square())[1]

    found = served(Greedy())
    found.work.answer(*message("torch.square", has_backward=False))
    ((answer, sent),) = found.lines.told()
    assert np.frombuffer(sent[answer["values"][0][-1]], np.float32).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    ("target", "arguments", "expected"),
    [
        ("operator.imul", (Ref(0), 2.0), [2.0, 4.0, 6.0]),
        ("builtins.setattr", (Ref(0), "data", Ref(1)), [1.0, 4.0, 9.0]),
    ],
    ids=["writes", "assigns"],
)
def test_answer__body_gives_a_leaf_other_elements__they_are_told(target, arguments, expected):
    body = (
        Step(PLACEHOLDER, "t0", (TensorSpec("float32", (3,), (1,), 0, 3),)),
        Step(CALL_FUNCTION, "torch.square", (Ref(0),)),
        Step(CALL_FUNCTION, target, arguments),
        Step(OUTPUT, "output", (Ref(1),)),
    )
    made, trace, found = HostMessage(), ResponseTrace(Program((), body), None), served(Sharing())
    trace.translated = Translated(Program((), body), range(len(body)))
    made.add(trace, {"t0": torch.tensor([1.0, 2.0, 3.0])}, None)
    found.work.answer(plain(made.head), made.buffers)
    ((answer, sent),) = found.lines.told()
    assert np.frombuffer(sent[answer["values"][0][-1]], np.float32).tolist() == expected


def test_message__programs_differ_in_a_number_of_another_kind__are_two():
    made = HostMessage()
    for number in (1, True, 1.0, 1):
        body = (
            Step(PLACEHOLDER, "t0", (TensorSpec("float32", (3,), (1,), 0, 3),)),
            Step(CALL_FUNCTION, "torch.add", (Ref(0), number)),
            Step(OUTPUT, "output", (Ref(1),)),
        )
        trace = ResponseTrace(Program((), body), None)
        trace.translated = Translated(Program((), body), range(3))
        made.add(trace, {"t0": torch.ones(3)}, None)
    assert [job["outline"] for job in made.jobs] == [0, 1, 2, 0]
    sent = [steps[1][2][1] for _, steps in plain(made.head)["outlines"]]
    assert list(map(repr, sent)) == ["1", "True", "1.0"]
