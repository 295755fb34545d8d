"""The worker's bench: which part of it answers each message. All that needs a framework happens here and below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ci_autotest.backends.standing import standing
from ci_autotest.run.casework import Casework
from ci_autotest.run.equipment import REFERENCE, Equipment
from ci_autotest.run.messages import (
    CasesDone,
    Confirm,
    Discover,
    Discovered,
    Examine,
    Examined,
    Hello,
    Ready,
    Record,
    Replay,
    Replayed,
    RunCases,
    TryProgram,
)
from ci_autotest.run.questions import Questions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.run.messages import FromWorker, ToWorker
    from ci_autotest.run.place import Place


class Bench:
    """Answer the parent's messages.

    Args:
        place: Where the case in flight is told.
        send: Sends a part of an answer before the answer is complete.

    Attributes:
        equipment: What ``Hello`` set up.
    """

    def __init__(self, place: Place, send: Callable[[CasesDone], None]) -> None:
        """Wait for ``Hello``."""
        self._place = place
        self._send = send
        self.equipment: Equipment
        self._casework: Casework
        self._questions: Questions

    def answer(self, message: ToWorker) -> FromWorker:
        """Return the answer to a message."""
        match message:
            case Hello():
                return self._set_up(message)
            case Discover(file):
                self._place.enter(REFERENCE, REFERENCE)
                return Discovered(self.equipment.library.tests(file))
            case RunCases():
                return self._casework.run(message)
            case Confirm():
                return self._questions.confirm(message)
            case Record():
                return self._questions.record(message)
            case Replay(runs=runs):
                return self._replayed(runs)
            case TryProgram():
                return self._questions.tried(message)
            case Examine(candidate=name, operators=operators):
                return Examined(**standing(self.equipment.backends[name], operators)._asdict())

    def _replayed(self, runs: list[RunCases]) -> Replayed:
        """Run cases again, in order; nothing is sent before all have run."""
        parts: list[CasesDone] = []
        casework = Casework(self.equipment, self._place, parts.append)
        failures = []
        for run in runs:
            parts.append(casework.run(run))
            failures += [(run.test.id, failure) for part in parts for failure in part.failures]
            parts.clear()
        return Replayed(failures=failures)

    def _set_up(self, hello: Hello) -> Ready:
        equipment = self.equipment = Equipment(hello, self._place)
        self._casework = Casework(equipment, self._place, self._send)
        self._questions = Questions(equipment, self._place)
        return Ready(torch=str(torch.__version__), candidates=equipment.infos)
