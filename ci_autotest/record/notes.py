"""What is to be said of a case: by its body, which is shown with a finding, and by the recorder.

Batches of data loaders become inputs of both sides, and the report says that nothing tested the loaders.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from torch.utils.data import DataLoader

from ci_autotest.record.context import CURRENT, recorder_for
from ci_autotest.record.draw.profiles import NO_INPUT

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Background
    from ci_autotest.errors import Unsupported
    from ci_autotest.values.result import NoProfile

_NOTES_AT_MOST: Final = 10
_NOTE_CHARS: Final = 300
_ITERATE: Final = DataLoader.__iter__


class CaseNotes:
    """What the recorder notes about one attempt.

    Attributes:
        lines: What the body says about the case.
        assumption: The false assumption that ended the body; empty if none did.
        skipped: Why the body skipped the case; empty if it did not.
        untested: Why no candidate can run the body; ``None`` if it does not ask for that.
        is_widened: Whether an input is of a kind that the body's own harness never draws, so that the body may not be
            able to take it.
        remarks: Classes of torch in the body of which nothing is tested: a data loader, wrappers of modules.
        background: What the source of the test knows about the case.
        added: Keys of the inputs that the form of the case has added to those of the body.
        profile_applied: Whether the attempt's profile changed anything.
        profile_obstacle: Why it changed nothing in the tensor that it met last, as in ``draw.profiles``.
    """

    __slots__ = (
        "added", "assumption", "background", "is_widened", "lines", "profile_applied", "profile_obstacle", "remarks",
        "skipped", "untested",
    )  # fmt: skip

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.assumption = ""
        self.skipped = ""
        self.untested: Unsupported | None = None
        self.is_widened = False
        self.remarks: set[str] = set()
        self.background: Background | None = None
        self.added: set[str] = set()
        self.profile_applied = False
        self.profile_obstacle: NoProfile = NO_INPUT

    @property
    def has_given_up(self) -> bool:
        """Whether the body has ended its case: by a false assumption, a skip, or a request that nothing here meets."""
        return bool(self.assumption or self.skipped or self.untested)


def note(text: object) -> None:
    """Say something about this case, which is shown if the case becomes a finding.

    Args:
        text: At most 300 characters of it are kept, in one line; a case keeps its first ten notes.

    Raises:
        AuthorError: Called outside a test.
    """
    recorder = recorder_for("note")
    if len(recorder.notes.lines) < _NOTES_AT_MOST:
        words = "".join(char if char.isprintable() else " " for char in str(text)).split()
        recorder.notes.lines.append(" ".join(words)[:_NOTE_CHARS])


@wraps(_ITERATE)
def _iterate(loader: DataLoader[Any]) -> Any:
    recorder = CURRENT.get()
    if recorder is not None:
        recorder.notes.remarks.add("DataLoader")
    return _ITERATE(loader)


def notice_loaders() -> None:
    """Notice from now on which bodies iterate a data loader: torch has no hook for it."""
    if DataLoader.__iter__ is _ITERATE:
        DataLoader.__iter__ = _iterate  # type: ignore[method-assign]
