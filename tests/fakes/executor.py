"""An executor whose workers answer what a test gives them."""

from __future__ import annotations

from collections import deque

from ci_autotest.run.messages import Ready

READY = Ready(torch="2", candidates=[])


class FakeWorker:
    """Answer with what it is given, whatever it is sent."""

    def __init__(self) -> None:
        self.sent, self.answers = [], deque([READY])

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

    def close(self) -> None:
        pass


class FakeExecutor:
    slots = 1

    def __init__(self) -> None:
        self.started: list[FakeWorker] = []

    def start(self, _slot) -> FakeWorker:
        self.started.append(FakeWorker())
        return self.started[-1]
