"""An executor whose workers answer what a test gives them."""

from __future__ import annotations

import os
from collections import deque

from ci_autotest.run.messages import Ready
from ci_autotest.run.progress_beacon import Spot

READY = Ready(torch="2", candidates=[])


class FakeWorker:
    """Answer with what it is given, whatever it is sent."""

    def __init__(self, answers=(READY,)) -> None:
        self.sent, self.answers = [], deque(answers)
        self.fd, self._other = os.pipe()
        os.write(self._other, b"1")  # There is always something to read, until it is closed.
        self.beacon = self
        #: What `check` raises.
        self.faults = deque()

    def begin(self) -> None:
        pass

    def send(self, message) -> None:
        self.sent.append(message)

    def receive(self):
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def buffered(self):
        return None

    def check(self) -> None:
        if self.faults:
            raise self.faults.popleft()

    def read(self) -> Spot:
        """Return the place that the beacon shows, as long as its file is open."""
        os.fstat(self.fd)
        return Spot(0, 0, -1, 0, 1)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            os.close(self._other)
            self.fd = -1


class FakeExecutor:
    """Start workers.

    Args:
        answers: What each worker answers, in the order in which they start; a worker beyond them says that it is ready.
    """

    slots = 1

    def __init__(self, *answers) -> None:
        self.started: list[FakeWorker] = []
        self._answers = deque(answers)

    def start(self, _slot) -> FakeWorker:
        self.started.append(FakeWorker(self._answers.popleft() if self._answers else (READY,)))
        return self.started[-1]
