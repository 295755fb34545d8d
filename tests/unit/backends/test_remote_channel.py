"""What a worker hears of its host: answers in order, no more than it is owed, and which job the host is at."""

from __future__ import annotations

import json

import pytest

from ci_autotest.backends.framework.backend import Channel
from ci_autotest.backends.framework.request import HostMessage
from ci_autotest.backends.framework.response import ResponseError
from ci_autotest.host.loop import NOWHERE


class Host:
    """A host that sends frames with so many answers each, and is at one job after another while it is waited for."""

    def __init__(self, frames, jobs=()):
        self.frames, self.jobs, self.job = list(frames), list(jobs), NOWHERE
        self.asked = []

    def send(self, message, buffers=()):
        self.asked.append(message)

    def is_ready(self, wait_s):
        if not self.jobs:
            return True
        self.job = self.jobs.pop(0)
        return False

    def in_flight(self):
        return self.job, 0

    def receive(self):
        count, self.frames = self.frames[0], self.frames[1:]
        empty = {"values": [], "copies": [], "gradients": [], "failure": None, "backward_failure": None}
        return json.dumps([{**empty, "lacking": ["no_counterpart", str(i)]} for i in range(count)]).encode(), []


def message(count):
    made = HostMessage()
    made.jobs += [{}] * count
    return made


@pytest.mark.parametrize("frames", [[3], [1, 2], [1, 1, 1]], ids=str)
def test_next__answers_come_in_frames__are_heard_in_order(frames):
    channel = Channel(Host(frames))
    channel.send(message(3))
    received = [channel.next().answer.lacking.detail for _ in range(3)]
    assert received == [str(i) for count in frames for i in range(count)]


@pytest.mark.parametrize("frames", [[3], [1, 2]], ids=str)
def test_next__more_answers_than_asked_for__are_refused(frames):
    channel = Channel(Host(frames))
    channel.send(message(2))
    with pytest.raises(ResponseError, match=r"the host sent more answers than it had jobs \(1 more\)\."):
        [channel.next() for _ in range(2)]


def test_next__host_is_waited_for__each_job_that_it_is_at_is_told_once():
    told = []
    channel = Channel(Host([2], jobs=[NOWHERE, 0, 0, 1, NOWHERE, 1]))
    channel.send(message(2), told.append)
    channel.next()
    assert told == [0, 1]


@pytest.mark.parametrize(
    ("at", "owed", "said"),
    [(1, 3, [1, 1]), (NOWHERE, 3, [0]), (NOWHERE, 0, [])],
    ids=["a job", "waiting for all", "nothing to do"],
)
def test_look__host_is_lost__its_job_is_said_again(at, owed, said):
    host, seen = Host([]), []
    channel = Channel(host)
    channel.send(message(owed), seen.append)
    host.job = at
    channel.report()
    channel.report(is_lost=True)
    assert seen == said
