"""Notes of a body about its case; they are shown with a finding."""

from __future__ import annotations

from typing import Final

from ci_autotest.record.context import recorder_for

_NOTES_AT_MOST: Final = 10
_NOTE_CHARS: Final = 300


def note(text: object) -> None:
    """Say something about this case, which is shown if the case becomes a finding.

    Args:
        text: At most 300 characters of it are kept, in one line; a case keeps its first ten notes.

    Raises:
        AuthorError: Called outside a test.
    """
    recorder = recorder_for("note")
    if len(recorder.notes) < _NOTES_AT_MOST:
        words = "".join(char if char.isprintable() else " " for char in str(text)).split()
        recorder.notes.append(" ".join(words)[:_NOTE_CHARS])
