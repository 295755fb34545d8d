"""What a repro says of its finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """What a repro says of its finding, besides its program.

    Attributes:
        title: First line of the script's docstring.
        lines: The others, from the finding's message.
        kind: Kind of the finding.
        rtol: Allowed difference relative to the reference.
        atol: Allowed absolute difference, in the unit of the elements.
        check_dtype: Whether dtypes must be equal.
        strictness: As the configuration has it.
        has_backward: Whether only the backward pass shows the finding.
        timeout_s: Seconds that the candidate's process may take.
        folders: Folders of the candidate's modules, relative to the script.
        versions: What the program ran with, in text.
    """

    title: str
    lines: tuple[str, ...]
    kind: str
    rtol: float
    atol: float
    check_dtype: bool
    strictness: str
    has_backward: bool
    timeout_s: int
    folders: tuple[str, ...]
    versions: str
