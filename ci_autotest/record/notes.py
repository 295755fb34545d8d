"""Notes about a case: those of its body, which are shown with a finding, and those of the recorder.

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
    """Facts about one attempt that are not steps.

    Attributes:
        lines: Notes of the body about the case.
        assumption: The false assumption that ended the body; empty if none did.
        skipped: Why the body skipped the case; empty if it did not.
        untested: Why no candidate can run the body; ``None`` if any may.
        is_widened: True if an input is of a kind that the body's own harness never draws, so that the body may refuse
            it.
        remarks: Classes of torch that the body uses but that are not tested: a data loader, wrappers of modules.
        background: The facts that the source of the test knows about the case.
        added: Keys of the inputs that the form of the case has added to those of the body.
        profile_applied: True if the attempt's profile changed anything.
        profile_obstacle: Why the profile changed nothing in the last tensor, as in ``draw.profiles``.
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
        """True if the body has ended its case: by a false assumption, a skip, or an unsupported request."""
        return bool(self.assumption or self.skipped or self.untested)


def note(text: object) -> None:
    """Note something about this case; the note is shown if the case becomes a finding.

    Args:
        text: The note. At most 300 characters of it are kept, in one line; a case keeps its first ten notes.

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
    """Patch data loaders to notice when a body iterates one, because torch has no hook for it."""
    if DataLoader.__iter__ is _ITERATE:
        DataLoader.__iter__ = _iterate  # type: ignore[method-assign]
