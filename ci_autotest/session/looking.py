"""Suspects to findings: each is looked at again while the budget lasts; what is not is reported as it was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ci_autotest.errors import OutputError, UnavailableError
from ci_autotest.judgement import Verdict
from ci_autotest.report.finding_merge import united
from ci_autotest.run.messages import Record, Tried
from ci_autotest.session.crashes import by_operator, crash
from ci_autotest.session.findings import CONFIRMED_AT_MOST, make_finding, unconfirmed
from ci_autotest.session.made import shown_of, with_program, without_folder, write
from ci_autotest.session.progress import Progress
from ci_autotest.session.repeating import repeated

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import TextIO

    from ci_autotest.result import Finding
    from ci_autotest.session.ledger import Suspect
    from ci_autotest.session.made import Workshop
    from ci_autotest.session.signals import Signals


def look_at(
    left: list[Suspect],
    workshop: Workshop,
    stream: TextIO,
    found: list[Finding],
    signals: Signals,
    unrepeated: set[tuple[str, str, str, str]],
) -> None:
    """Make findings of the suspects, into ``found``: each is either among those or among what is ``left``.

    Findings of one identity, as crashes that are located later may be, are one.

    Args:
        left: The suspects; what was looked at is taken out.
        workshop: What findings are made with.
        stream: Is told what is found.
        found: Findings.
        signals: Held while a finding is added.
        unrepeated: Is given test, candidate, operator and kind of failures that their tests do not show alone.
    """
    progress = Progress(stream, 0, is_terminal=stream.isatty())
    left[:] = [part for suspect in left for part in _parts(suspect, workshop)]
    for i, suspect in enumerate(tuple(left)):
        is_left = workshop.allowance.is_spent or i >= CONFIRMED_AT_MOST
        told = {finding.id: finding.confirmed for finding in found}
        confirmed = [name for name, is_confirmed in told.items() if is_confirmed]
        seen = suspect if is_left else repeated(suspect, workshop)
        finding = as_seen(suspect, workshop) if is_left else _made(seen, workshop, progress, confirmed)
        with signals.held():
            unrepeated.update((test, *_identity(suspect)) for test in suspect.tests if test not in seen.tests)
            if finding is not None:
                add(found, _with_output(finding, suspect))
            del left[0]
        if finding is not None and finding.id not in told:
            progress.say(f"{finding.outcome.replace('_', ' ')}: {finding.headline}")


def _parts(suspect: Suspect, workshop: Workshop) -> list[Suspect]:
    """Return a suspect as one for each operator that its test was lost in, while there is time to look."""
    return [suspect] if workshop.allowance.is_spent else by_operator(suspect, workshop)


def _identity(suspect: Suspect) -> tuple[str, str, str]:
    """Return candidate, operator and kind of what was seen."""
    verdict = suspect.verdict
    return (suspect.candidate, verdict.operator, verdict.kind or "") if verdict is not None else ("", "", "")


def tell_as_seen(suspects: Sequence[Suspect], workshop: Workshop, found: list[Finding]) -> None:
    """Add suspects to the findings as they were seen: the run is over, and nothing is run again."""
    for suspect in suspects:
        add(found, _with_output(as_seen(suspect, workshop), suspect))


def as_seen(suspect: Suspect, workshop: Workshop) -> Finding:
    """Return a suspect as a finding that is not looked at any further."""
    if _is_not_alone(suspect):
        return _needing_others(suspect, Verdict(outcome="crashed", target="its test"), workshop)
    finding = unconfirmed(suspect, workshop)
    return _seen_once(finding) if suspect.repeats == "unknown" else finding


def _is_not_alone(suspect: Suspect) -> bool:
    """Whether a case that ended its worker does not do so alone."""
    return suspect.lost is not None and suspect.repeats in {"history", "never"}


def _seen_once(finding: Finding, more: str = "") -> Finding:
    """Return the finding of a case that ended its worker, and the run was ended before that was looked into."""
    detail = f"seen once: the run was ended before it was run again with what ran before it{more}"
    if finding.outcome == "timed_out":  # A machine with much to do is silent too: nobody's finding until seen twice.
        headline = f"{finding.operator} on {finding.candidate} timed out once"
        return msgspec.structs.replace(
            finding, outcome="flaky", confirmed=False, detail=detail, headline=headline,
            message=f"flaky: {headline}\n  {finding.candidate_seen}; {detail}",
        )  # fmt: skip
    return msgspec.structs.replace(
        finding, confirmed=False, detail=detail, message=f"{finding.message}\n  not confirmed, {detail}"
    )


def add(found: list[Finding], finding: Finding) -> None:
    """Add a finding; one of an identity that is there already is united with it."""
    at = next((i for i, other in enumerate(found) if other.identity == finding.identity), None)
    if at is None:
        found.append(finding)
    else:
        both = (found[at], finding)
        found[at] = united(both, {hit.test: hit.of_cases for item in both for hit in item.hits})


def _with_output(finding: Finding, suspect: Suspect) -> Finding:
    """Return a finding with what its process printed last: the fault handler's stack, where it had the time."""
    return finding if suspect.lost is None else msgspec.structs.replace(finding, output=suspect.lost.output.strip())


def _made(suspect: Suspect, workshop: Workshop, progress: Progress, confirmed: Collection[str]) -> Finding | None:
    """Return the finding, or the suspect as it is when making it fails: no report is lost for it."""
    try:
        if _is_not_alone(suspect):
            return _not_alone(suspect, workshop, confirmed)
        finding = make_finding(suspect, workshop, confirmed)
    except (OutputError, UnavailableError):
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours while one finding is made must not cost the run
        progress.say(
            f"a finding could not be confirmed or shrunk ({type(error).__name__}: {error}); it is kept as seen"
        )
        return as_seen(suspect, workshop)
    if finding is None:
        return None
    if suspect.repeats == "unknown" and finding.outcome == "flaky":
        return _seen_once(unconfirmed(suspect, workshop), "; alone it does not")
    if suspect.repeats == "unknown" and finding.outcome == "timed_out" and not finding.confirmed:
        return _seen_once(finding)
    if suspect.lost is not None and finding.outcome == "flaky":
        # It ended its worker again when it ran alone: that it does not when each step is watched takes nothing back.
        told = unconfirmed(suspect, workshop)
        return msgspec.structs.replace(
            told, confirmed=True, detail="alone in a fresh worker it did so again; with each step watched it did not"
        )
    return finding


def _not_alone(suspect: Suspect, workshop: Workshop, confirmed: Collection[str]) -> Finding:
    """Return the finding of a case that ends its worker only after others, or did so once."""
    lost = suspect.lost
    assert lost is not None  # noqa: S101 - the caller looked
    fresh = workshop.fresh()
    attempt = suspect.attempt if suspect.attempt >= 0 else None
    try:
        recorded = fresh.ask(Record(test=suspect.test, case=suspect.case, attempt=attempt, candidate=suspect.candidate))
    finally:
        fresh.close()
    if not isinstance(recorded, Tried):
        return as_seen(suspect, workshop)
    shown = shown_of(recorded)
    finding = with_program(_needing_others(suspect, recorded.verdict, workshop), shown.recording, workshop)
    if finding.id not in confirmed and (why := write(finding, shown.recording, workshop)):
        return without_folder(finding, why, workshop)  # else its folder is that finding's
    return msgspec.structs.replace(finding, repro=None, replay="")


def _needing_others(suspect: Suspect, verdict: Verdict, workshop: Workshop) -> Finding:
    """Return the finding, without its program, of a case that does not end its worker alone."""
    lost = suspect.lost
    assert lost is not None  # noqa: S101 - the caller looked
    finding = crash(suspect, verdict, lost, workshop)
    if suspect.repeats == "history":
        detail = f"alone it does not: it needs {suspect.history} to run before it"
        return msgspec.structs.replace(finding, confirmed=True, detail=detail, message=f"{finding.message}\n  {detail}")
    detail = f"the worker {lost.reason} once; neither alone nor after the cases that ran before it did it do so again"
    headline = f"{finding.operator} on {finding.candidate} is flaky"
    message = f"flaky: {finding.operator} on {finding.candidate}\n  {detail}"
    return msgspec.structs.replace(finding, outcome="flaky", detail=detail, headline=headline, message=message)
