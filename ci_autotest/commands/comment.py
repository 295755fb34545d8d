"""The command ``comment``: publishes a report, or the reports of another run, as the comment on a pull request.

The author of the pull request may have written everything that is downloaded. So the archive is never unpacked, the
report is decoded strictly, programs are printed from ``program.json`` alone, and GitHub says which pull request it is.
"""

from __future__ import annotations

import hashlib
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
import requests

from ci_autotest.commands.baseline import Baselines
from ci_autotest.commands.downloaded_report import read_downloaded
from ci_autotest.commands.exit_status import ended_by
from ci_autotest.commands.output_writer import (
    ended_early,
    links_from,
    permissions_in,
    read_report,
    saved_programs,
    without_report,
    write_surfaces,
)
from ci_autotest.errors import AutotestError, OutputError, PublishError, UsageError
from ci_autotest.github.artifact import check_artifact_name, download, of_run
from ci_autotest.github.client import Client
from ci_autotest.github.comment import Published, publish, refusal_text
from ci_autotest.github.comment_sections import HEADER_CHARS, LEG_CHARS, MAX_CHARS, CommentSection, Turn, marker
from ci_autotest.github.event import RunTarget, read_event
from ci_autotest.github.http_messages import Forbidden
from ci_autotest.github.origin import Absent, find_pull_request, with_run
from ci_autotest.github.sticky import WantedComment
from ci_autotest.report.comment_text import LEAST, render_comment
from ci_autotest.report.finding_text import Setting
from ci_autotest.report.links import Links, folder_of, image_of
from ci_autotest.report.verdict_line import is_wholly_aligned
from ci_autotest.values.judgement import CauseKind, causes
from ci_autotest.values.result import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO, TextIO

    from ci_autotest.github.artifact import Artifact
    from ci_autotest.github.event import Event
    from ci_autotest.github.origin import Origin, RunJob
    from ci_autotest.program.repro.permissions import Permissions
    from ci_autotest.values.result import RunResult

#: Causes, besides findings, that no baseline has.
_OTHER_CHANGES: Final = frozenset({CauseKind.BROKEN, CauseKind.ORPHAN, CauseKind.UNEXPECTED_PASS, CauseKind.SLOWER})
When: TypeAlias = Literal["always", "changes", "failures"]

#: Seconds that all requests and waits of one publication may take.
DEADLINE_S: Final = 300.0

_NEEDED: Final = "actions: read` and `pull-requests: read"
#: Failed jobs beside a report that are named.
_JOBS_NAMED: Final = 3
_AGAIN: Final = "What was misaligned here before is aligned again."


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Options of the command.

    Attributes:
        folder: Output folder of a run; ``None`` if ``run_id`` is given.
        run_id: The run whose artifacts are downloaded.
        artifact_name: Name under which reports are uploaded.
        name: Name of the check; each check has a comment of its own.
        when: Condition for creating the comment.
        baseline: A report, ``auto``, ``auto-if-any``, or nothing.
        output: Folder for the downloaded reports.
        config: The configuration whose kernels a shown program may name; the nearest one if ``None``.
    """

    folder: Path | None
    run_id: int | None
    artifact_name: str
    name: str
    when: When
    baseline: str
    output: Path | None
    config: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A monotonic clock, in seconds, and a way to wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


_REAL: Final = Clock()


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One report and what its section of the comment needs.

    Attributes:
        unread: Why the report that was uploaded is not the result here; empty if it is.
        is_doubted: Whether its run failed and no report says why, which is no reason to begin a comment.
    """

    name: str
    result: RunResult
    setting: Setting
    artifact_name: str
    unread: str = ""
    is_doubted: bool = False


def comment(asked: Publication, environ: Mapping[str, str], stream: TextIO, clock: Clock = _REAL) -> int:
    """Create or update the sticky comment; the exit status does not depend on the report's verdict.

    Args:
        asked: Options of the command.
        environ: Environment of a workflow step.
        stream: Receives the address of the comment and what was done.
        clock: Limits the time of all requests.

    Raises:
        AutotestError: There is no report, no token or no pull request, or the server's answers are not GitHub's.
    """
    check_artifact_name(asked.artifact_name)
    marker(asked.name)
    if (asked.folder is None) == (asked.run_id is None):
        message = "comment takes the folder of a report, or --run-id: give one of them."
        raise UsageError(message)
    result = read_report(asked.folder) if asked.folder is not None else None
    event = read_event(environ, asked.run_id)
    with requests.Session() as session, ExitStack() as files:
        client = Client(
            session=session, files=files, api_url=event.api_url, token=event.token,
            clock=clock.now, sleep=clock.sleep, deadline_s=DEADLINE_S, start_s=clock.now(),
        )  # fmt: skip
        published = _publish(asked, client, event, result, environ)
    stream.write(f"comment: {published.url or 'not posted'} ({published.action})\n{published.message}\n")
    return 0


def _publish(
    asked: Publication, client: Client, event: Event, result: RunResult | None, environ: Mapping[str, str]
) -> Published:
    origin = find_pull_request(client, event)
    if isinstance(origin, Absent):
        return Published(url=None, action="degraded", message=origin.message)
    if isinstance(origin, Forbidden):
        return _degraded(origin, _NEEDED if isinstance(event.target, RunTarget) else "pull-requests: write")
    if result is None:
        origin = with_run(client, event, origin)
        legs = _downloaded(asked, client, (event, origin), environ)
    else:
        legs = [_own_leg(asked, result, environ, origin)]
    if isinstance(legs, Forbidden):
        return _degraded(legs, "actions: read")
    if not legs:
        # Without a report there is nothing to publish, but an older green comment must not stand.
        return _marked(asked, client, event, origin)
    baselines = Baselines(
        client=client, repository=event.repository, branch=origin.pull.base, head=origin.sha, run_id=event.run_id,
        asked=asked.baseline,
    )  # fmt: skip
    held = [
        leg if leg.unread else replace(leg, result=baselines.applied(leg.result, leg.artifact_name))
        for leg in _explained(legs, origin)
    ]
    if asked.output is not None:
        for leg in (leg for leg in held if not leg.unread):
            written = write_surfaces(leg.result, asked.output / leg.artifact_name, leg.setting)
            if written is not leg.result:
                raise OutputError(written.notes[0])
    published = publish(client, event, origin.pull, wanted_of(asked, held, _turn(event, origin)))
    unread = [leg.unread for leg in held if leg.unread]
    if published.action == "skipped" and unread:
        raise PublishError(unread[0])
    return published


def _explained(legs: list[Leg], origin: Origin) -> list[Leg]:
    """Return the legs; where a run or a job failed and no report says why, what it left is not aligned."""
    if not any(leg.result.exit_code for leg in legs) and origin.failure:
        why = (
            f"{origin.failure}, and its reports do not say why: a command was ended after it had written its report, "
            "or another job failed."
        )
        return [_with_verdict(leg, why) for leg in legs]
    found = [_beside(leg, origin.failed) for leg in legs]
    notes = tuple(f"The job '{job.name}' of this run ended with '{job.conclusion}'." for job in origin.failed)
    if not notes or found != legs or any(leg.result.exit_code for leg in legs):
        return found
    # Other jobs may have nothing to do with the reports.
    first = msgspec.structs.replace(legs[0].result, notes=(*notes[:_JOBS_NAMED], *legs[0].result.notes))
    return [replace(legs[0], result=first), *legs[1:]]


def _beside(leg: Leg, failed: Sequence[RunJob]) -> Leg:
    """Return a leg as it is beside the failed jobs of a run that goes on: not aligned if its own job is among them."""
    if not failed or leg.result.exit_code or leg.unread:
        return leg
    own = [job for job in failed if _plain(job.name) == _plain(leg.name or leg.artifact_name)]
    own = own or [job for job in failed if _plain(leg.artifact_name).endswith(f"report-{_plain(job.name)}")]
    if not own:
        return leg
    why = (
        f"the job '{own[0].name}' of this run ended with '{own[0].conclusion}', and its report does not say why: its "
        "command was ended after it had written the report, or another step failed."
    )
    return _with_verdict(leg, why)


def _plain(name: str) -> str:
    """Return a job's name, ``test (3.11, cpu)``, or an artifact's, ``test-3.11_cpu``, without what tells them apart."""
    return re.sub(r"[^a-z0-9.]+", "-", name.casefold()).strip("-")


def _with_verdict(leg: Leg, why: str) -> Leg:
    result = ended_by(leg.result, RunError(why, UsageError.exit_code))
    return replace(leg, result=result, is_doubted=True)


def _degraded(refusal: Forbidden, needed: str) -> Published:
    return Published(url=None, action="degraded", message=refusal_text(refusal, needed))


def wanted_of(asked: Publication, legs: list[Leg], turn: Turn) -> WantedComment:
    """Return the sections of the comment; each report has an equal share of the comment's length."""
    room = max(LEAST, (MAX_CHARS - HEADER_CHARS) // len(legs))
    return WantedComment(
        marker=marker(asked.name),
        turn=turn,
        sections=tuple(_section(leg, turn, room) for leg in legs),
        may_create=any(_may_begin(leg, asked.when) for leg in legs),
    )


def _section(leg: Leg, turn: Turn, room: int) -> CommentSection:
    # If the comment reported a failure before, the sentence `_AGAIN` is added, so its room is kept free.
    text = render_comment(leg.result, limit=room - len(_AGAIN.encode()), setting=leg.setting, title=leg.name)
    head, between, rest = text.partition("\n\n")
    is_aligned = bool(head) and is_wholly_aligned(leg.result)
    return CommentSection(
        leg=leg.name, turn=turn, text=text, again=f"{head}\n\n{_AGAIN}{between}{rest}" if is_aligned else ""
    )


def _may_begin(leg: Leg, when: When) -> bool:
    if leg.unread or (leg.is_doubted and when != "always"):
        return False
    return _begins(leg.result, when)


def _begins(result: RunResult, when: When) -> bool:
    """Return whether a report is a reason to create a comment; an existing comment is updated in any case."""
    if when == "always":
        return True
    if when == "changes" and result.new is not None:
        is_other = any(cause.kind in _OTHER_CHANGES for cause in causes(result))
        return bool(result.new or result.fixed or is_other or (result.exit_code and not result.findings))
    return result.exit_code != 0


def leg_name(artifact: str, asked: str) -> str:
    """Return the name of a leg's section: what its artifact's name has more than the one that was asked for."""
    name = artifact.removeprefix(asked).lstrip("-")
    if len(name) <= LEG_CHARS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{name[: LEG_CHARS - len(digest) - 1]}…{digest}"


def _turn(event: Event, origin: Origin) -> Turn:
    """Return the run and its attempt that the comment describes: the requested run's, where GitHub answered."""
    return Turn(event.run_id, origin.run.run_attempt if origin.run is not None else event.attempt)


def _marked(asked: Publication, client: Client, event: Event, origin: Origin) -> Published:
    """Note in an existing comment that this run left no report, because the comment describes an older commit."""
    reason = (
        f"it has no artifact '{asked.artifact_name}', and none that begins with '{asked.artifact_name}-': it ended "
        "before it had a report, or gave it another name."
    )
    leg = Leg(
        name="", result=ended_early(str(event.run_id), [reason]), setting=Setting(), artifact_name=asked.artifact_name
    )
    wanted = wanted_of(asked, [leg], _turn(event, origin))
    published = publish(client, event, origin.pull, replace(wanted, may_create=False))
    if published.action == "skipped":
        message = f"run {event.run_id} left no report: {reason}"
        raise PublishError(message)
    return published


def _own_leg(asked: Publication, result: RunResult, environ: Mapping[str, str], origin: Origin) -> Leg:
    links = links_from({"ARTIFACT_NAME": asked.artifact_name, **environ}, result)
    # Not `is_own`: the folder may be of reports that strangers have written, so programs are checked and printed anew.
    return Leg(
        name="",
        result=result,
        setting=Setting(
            links=_of_pull(links, origin, environ) if links else None,
            source=saved_programs(asked.folder, _permissions(asked, links.run_id if links else 0), is_own=False)
            if asked.folder is not None
            else None,
        ),
        artifact_name=asked.artifact_name,
    )


def _of_pull(links: Links, origin: Origin, environ: Mapping[str, str]) -> Links:
    """Return the links of a comment, which name the pull request's own commit, not the merge commit."""
    pull = origin.pull
    return replace(links, sha=origin.sha, pull=pull.number, is_foreign=pull.from_fork is True, image=image_of(environ))


def _permissions(asked: Publication, run_id: int) -> Permissions:
    """Return what a program may name; the lines beside it download its tensors into the folder of the run."""
    found = permissions_in(asked.config)
    return replace(found, report=folder_of(run_id)) if run_id else found


def _downloaded(
    asked: Publication, client: Client, about: tuple[Event, Origin], environ: Mapping[str, str]
) -> list[Leg] | Forbidden:
    event, origin = about
    found = of_run(client, event.repository, event.run_id, asked.artifact_name)
    if isinstance(found, Forbidden):
        return found
    legs = []
    for artifact in found:
        data = download(client, event.repository, artifact)
        if isinstance(data, Forbidden):
            return data
        leg = _downloaded_leg(asked, artifact, data, (event, origin))
        links = _of_pull(leg.setting.links, origin, environ) if leg.setting.links else None
        legs.append(replace(leg, setting=replace(leg.setting, links=links)))
    # Beside a report that was merged, the shards that it was merged from say nothing more.
    if any(leg.artifact_name == asked.artifact_name for leg in legs):
        legs = [leg for leg in legs if leg.artifact_name == asked.artifact_name or leg.result.shard[1] == 1]
    # The only one needs no name to be told from others.
    return legs if len(legs) > 1 else [replace(leg, name="") for leg in legs]


def _downloaded_leg(asked: Publication, artifact: Artifact, data: BinaryIO, about: tuple[Event, Origin]) -> Leg:
    event, origin = about
    name = leg_name(artifact.name, asked.artifact_name)
    try:
        read = read_downloaded(artifact.name, data, _permissions(asked, event.run_id))
    except AutotestError as error:
        return _unread(name, artifact, f"run {event.run_id} has a report that cannot be read: {error}")
    run = origin.run
    # A job that failed is run again, and has not uploaded this time; one that passed may have been left out.
    if run is not None and read.result.exit_code and (artifact.created_at or run.run_started_at) < run.run_started_at:
        note = f"This report is of an earlier attempt of run {run.id}: attempt {run.run_attempt} has left none here."
        read = replace(read, result=msgspec.structs.replace(read.result, notes=(note, *read.result.notes)))
    links = Links(
        server=event.server_url, repository=event.repository, sha="", prefix=read.result.environment.folder,
        run=event.run_url, artifact=f"{event.run_url}/artifacts/{artifact.id}", run_id=event.run_id,
        digest=(artifact.digest or "").removeprefix("sha256:"), artifact_name=artifact.name,
        uploaded=artifact.created_at or "",
    )  # fmt: skip
    return Leg(
        name=name, result=read.result, setting=Setting(links=links, source=read.source), artifact_name=artifact.name
    )


def _unread(name: str, artifact: Artifact, why: str) -> Leg:
    """Return a leg that says why there is no report; an older comment must not stand as if it were of this run."""
    return Leg(name=name, result=without_report(why), setting=Setting(), artifact_name=artifact.name, unread=why)
