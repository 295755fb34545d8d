"""What shows a misalignment under pytest or unittest: its smallest program, and a folder if one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ci_autotest.alignment.accepted import identity_of, judged_beyond
from ci_autotest.alignment.cases import accepts_of
from ci_autotest.alignment.recordings import shown_recording, to_live
from ci_autotest.alignment.single_step import inlined
from ci_autotest.alignment.verdict import live_of
from ci_autotest.report.finding_files import finding_files, located, noted_case, repro_script
from ci_autotest.report.finding_folders import FINDINGS, write_finding
from ci_autotest.shrink.shrinker import CALLS_AT_MOST, COMPILATIONS_AT_MOST, Inline, Redraw, ShownTrial, shrunk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.alignment.cases import Contender
    from ci_autotest.alignment.verdict import Judged
    from ci_autotest.backends.torch_eager import TorchBackend
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.config import Candidate
    from ci_autotest.shrink.shrinker import Proposal
    from ci_autotest.values.case import DrawnValue
    from ci_autotest.values.finding import Finding

#: Trials for one finding: a test waits for them.
_TRIALS_AT_MOST: Final = 100
#: Kinds that a smaller program shows by chance only, or that are about a step which the reference refuses.
_NOT_SHRUNK: Final = frozenset({"nondeterminism", "leniency", "graph"})
#: The reference's device.
_CPU: Final = "cpu"


class DrawAttempt(Protocol):
    """Makes an attempt of a test."""

    def __call__(
        self, case: int, number: int, edits: Mapping[str, DrawnValue] | None = None, profile: str | None = None, /
    ) -> Attempt:
        """Make the attempt; ``edits`` and ``profile`` replace draws by their site, and the case's own profile."""


class SeenMisalignment(NamedTuple):
    """A misalignment as it was seen.

    Attributes:
        judged: The verdict with its program.
        candidate: The row of the candidate.
        contender: Its backend and its rules.
        reference: The reference.
        at: Numbers of the case and of the attempt.
    """

    judged: Judged
    candidate: Candidate
    contender: Contender
    reference: TorchBackend
    at: tuple[int, int]

    def shown(self, judged: Judged, attempt: Attempt | None = None) -> ShownTrial:
        """Return a verdict with its program."""
        contender = self.contender
        sides = (contender.backend, self.reference)
        recording = shown_recording(judged, self.candidate, contender.rules, sides, _CPU)
        if attempt is None:
            return ShownTrial(judged.verdict, recording)
        return ShownTrial(judged.verdict, recording, tuple(attempt.draws), attempt.profile)


def smallest(seen: SeenMisalignment, attempt: Attempt | None, draw: DrawAttempt) -> ShownTrial:
    """Return the smallest program that shows a misalignment, found by trials in this process.

    Args:
        seen: The misalignment.
        attempt: The attempt that shows it; ``None`` if the reference rejects it.
        draw: Makes the attempts of the test.
    """
    shown = seen.shown(seen.judged, attempt)
    if attempt is None or seen.judged.verdict.kind in _NOT_SHRUNK:
        return shown
    # What shows no steps is compiled, or exported, for each trial.
    trials = _TRIALS_AT_MOST if seen.contender.backend.shows_steps else COMPILATIONS_AT_MOST
    return shrunk(shown, lambda proposal: _tried(proposal, seen, draw), (trials, CALLS_AT_MOST))


def _tried(proposal: Proposal, seen: SeenMisalignment, draw: DrawAttempt) -> ShownTrial | None:
    contender, attempt = seen.contender, None
    try:
        if isinstance(proposal, Redraw):
            attempt = draw(*seen.at, proposal.edits, proposal.profile)
            live = live_of(contender.backend.adapted(attempt))
        else:
            live = to_live(proposal.recording)
            if isinstance(proposal, Inline):
                live = inlined(live, proposal.step, seen.reference)
        accepts = contender.accepts if attempt is None else accepts_of(attempt, contender)
        wanted = identity_of(seen.judged.verdict)
        beyond = judged_beyond(live, contender.beside(seen.reference), accepts, wanted=wanted)
        return seen.shown(beyond.judged, attempt)
    except Exception:  # noqa: BLE001 - an edited draw may lead the body anywhere: that trial shows nothing
        return None


def write_folder(
    shown: ShownTrial, finding: Finding, output: str, folders: tuple[Path, ...], case_timeout_s: float
) -> str:
    """Write the folder of a finding; return its path as the user wrote that of the output folder.

    Args:
        shown: The smallest program.
        finding: The finding of that program.
        output: The output folder as the user wrote it.
        folders: Folders to search for the candidate's modules.
        case_timeout_s: Seconds that a case may take.

    Raises:
        OutputError: It cannot be written.
    """
    place = f"{output.rstrip('/')}/{FINDINGS}/{finding.id}"
    folder = Path(place).resolve()
    noted = noted_case(located(shown.recording, folders, case_timeout_s, output), finding)
    script = repro_script(noted, finding, folder, folders, case_timeout_s).encode()
    write_finding(folder, {**finding_files(noted, finding), "repro.py": script})
    return place
