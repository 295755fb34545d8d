"""A worker that is asked one question at a time, and answers what a test says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ci_autotest.run.messages import Hello, Ready

if TYPE_CHECKING:
    from collections.abc import Callable

HELLO = Hello(
    root="/", folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=[], tolerances=[]
)


class AskedWorker:
    """Answer the greeting, and every other message with what ``answer`` gives of it; an error is raised."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self.asked: list[Any] = []
        self.is_closed = False

    def printed(self) -> str:
        return ""

    def begin(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def ask(self, message: Any, _until: float | None = None) -> Any:
        if isinstance(message, Hello):
            return Ready(torch="2.13", candidates=[])
        self.asked.append(message)
        answer = self._answer(message)
        if isinstance(answer, Exception):
            raise answer
        return answer
