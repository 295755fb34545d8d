"""What shows a misalignment under pytest or unittest: its smallest program, and a folder if one is asked for."""

from __future__ import annotations

import os
import select
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from ci_autotest.alignment.accepted import identity_of, judged_beyond
from ci_autotest.alignment.cases import accepts_of
from ci_autotest.alignment.recordings import shown_recording, to_live
from ci_autotest.alignment.single_step import inlined
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.devices import device_of, use_one_thread
from ci_autotest.backends.forks import ForkedProcess, fork
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.program.targets import is_own
from ci_autotest.report.finding_files import finding_files, located, noted_case, repro_script
from ci_autotest.report.finding_folders import FINDINGS, write_finding
from ci_autotest.run.messages import Tried
from ci_autotest.shrink.shrinker import CALLS_AT_MOST, COMPILATIONS_AT_MOST, Inline, Redraw, ShownTrial, shrunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.alignment.cases import Contender
    from ci_autotest.alignment.verdict import Judged
    from ci_autotest.backends.eager.backend import TorchBackend
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.shrink.shrinker import Proposal
    from ci_autotest.values.case import DrawnValue
    from ci_autotest.values.finding import Finding

#: Trials for one finding, because a test waits for them, and seconds after which they end all the same.
_TRIALS_AT_MOST: Final = 100
_SECONDS_AT_MOST: Final = 60.0
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
    candidate: AnyCandidate
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
    """Return the smallest program that shows a misalignment, found by trials in a fork of this process, or in it.

    Args:
        seen: The misalignment.
        attempt: The attempt that shows it; ``None`` if the reference rejects it.
        draw: Makes the attempts of the test.
    """
    shown = seen.shown(seen.judged, attempt)
    if attempt is None or seen.judged.verdict.kind in _NOT_SHRUNK:
        return shown
    backend, end = seen.contender.backend, time.monotonic() + _SECONDS_AT_MOST
    # What shows no steps is compiled, or exported, for each trial.
    trials = _TRIALS_AT_MOST if backend.shows_steps else COMPILATIONS_AT_MOST

    def shrink() -> ShownTrial:
        judge = partial(_tried, seen=seen, draw=draw)
        return shrunk(shown, judge, (trials, CALLS_AT_MOST), lambda: time.monotonic() >= end)

    # A kernel may crash on a smaller input. Compilers, devices and ranks have threads or processes that no fork has.
    can_fork = "again" in backend.abilities
    if can_fork and device_of(seen.candidate) == "cpu":
        return _in_a_fork(shrink) or shown
    return shrink()


def _in_a_fork(shrink: Callable[[], ShownTrial]) -> ShownTrial | None:
    """Return what a fork of this process finds; ``None`` if it crashes or takes too long."""
    reader, writer = os.pipe()

    def work() -> None:
        use_one_thread()  # as a fork has no other one
        null = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(null, descriptor)
        found = shrink()
        program, tensors = encode_program(found.recording), encode_tensors(found.recording)
        answer = msgspec.msgpack.encode(Tried(verdict=found.verdict, program=program, tensors=tensors))
        with os.fdopen(writer, "wb") as stream:
            stream.write(answer)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = ForkedProcess(fork(work, {writer}))
    os.close(writer)
    try:
        data = _read(reader, time.monotonic() + _SECONDS_AT_MOST)
    finally:
        os.close(reader)
        child.kill()
    try:
        answer = msgspec.msgpack.decode(data, type=Tried)
    except msgspec.MsgspecError:
        return None
    return ShownTrial(answer.verdict, decode(answer.program, answer.tensors, is_own))


def _read(reader: int, end: float) -> bytes:
    """Read until the writer is closed, or the time is over."""
    data = b""
    while select.select([reader], [], [], max(end - time.monotonic(), 0))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        data += part
    return data


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
