"""``results.sarif``: one result for each finding, for code scanning (SARIF 2.1.0).

A rule is an operator with a kind. A finding is an error if it counts against the run, and a note otherwise.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ci_autotest.report.atomic import write_text
from ci_autotest.report.document import one_line, plain
from ci_autotest.report.finding_program import program_or_reason
from ci_autotest.report.links import repository_path
from ci_autotest.report.verdict_line import headline
from ci_autotest.values.finding import counts_against
from ci_autotest.values.judgement import failing
from ci_autotest.values.result import kernel_of
from ci_autotest.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
#: Exit statuses of a run that compared everything it was asked to compare.
_COMPLETE: Final = frozenset({0, 1})
#: GitHub stores this many results of a run and refuses a file with more. Source: "SARIF support for code scanning".
_RESULTS_AT_MOST: Final = 25_000
_MESSAGE_CHARS: Final = 8_192


def write(result: RunResult, path: Path) -> None:
    """Write the run's findings as SARIF.

    Raises:
        OutputError: The folder cannot be written; the earlier content is untouched.
    """
    write_text(path, render(result))


def render(result: RunResult) -> str:
    """Return the run's findings as a SARIF log."""
    # Findings that count come first, so that a file at GitHub's limit still has them.
    failed = {finding.id for finding in failing(result)}
    ranked = sorted(result.findings, key=lambda finding: (finding.id not in failed, not counts_against(finding)))
    findings = ranked[:_RESULTS_AT_MOST]
    rules = list(dict.fromkeys(_rule_id(finding) for finding in findings))
    descriptions = {_rule_id(finding): _rule(finding) for finding in findings}
    driver = {"name": "ci-autotest", "version": VERSION, "rules": [descriptions[rule] for rule in rules]}
    index = {rule: position for position, rule in enumerate(rules)}
    run = {
        "tool": {"driver": driver},
        # Code scanning closes the alerts that a run lacks: an incomplete run must not look like a repaired operator.
        "invocations": [{"executionSuccessful": _is_complete(result), "exitCode": result.exit_code}],
        "results": [_result(finding, index, failed, _locations(finding, result)) for finding in findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _is_complete(result: RunResult) -> bool:
    has_gaps = result.broken or result.interrupted or any(item.cases.not_run for item in result.results)
    return result.exit_code in _COMPLETE and not has_gaps


def _rule_id(finding: Finding) -> str:
    return f"{one_line(finding.operator) or 'unknown'}/{finding.kind}"


def _rule(finding: Finding) -> dict[str, Any]:
    return {
        "id": _rule_id(finding),
        "shortDescription": {"text": f"{one_line(finding.operator) or 'unknown operator'}: {finding.kind}"},
    }


def _result(finding: Finding, index: dict[str, int], failed: set[str], locations: dict[str, Any]) -> dict[str, Any]:
    rule = _rule_id(finding)
    # Against the candidate, but in the baseline too, for example.
    spared = "warning" if counts_against(finding) else "note"
    return {
        "ruleId": rule,
        "ruleIndex": index[rule],
        "level": "error" if finding.id in failed else spared,
        "message": {"text": _message(finding)},
        **locations,
        # The id stays the same from run to run, so an alert does not move when the test's file is edited.
        "partialFingerprints": {"ciAutotestFinding/v1": finding.id},
        **({} if finding.known is None else {"suppressions": _suppressions(finding.known)}),
    }


def _suppressions(reason: str) -> Sequence[dict[str, str]]:
    return [{"kind": "external", "justification": one_line(reason)}]


def _message(finding: Finding) -> str:
    again = finding.replay and f"replay: {finding.replay}"
    parts = (headline(finding), finding.message, program_or_reason(finding), again)
    return "\n\n".join(plain(part) for part in parts if part)[:_MESSAGE_CHARS]


def _locations(finding: Finding, result: RunResult) -> dict[str, Any]:
    """Return where a finding stands: at its kernel if that is known, with the test beside it; else at its test."""
    location, kernel = finding.location, kernel_of(result, finding)
    file = finding.test.partition("::")[0] if location is None else location.file
    test = _place(repository_path(result.environment.folder, file), location.line if location else None)
    if kernel is None:
        return {"locations": [test]}
    related = {**test, "id": 1, "message": {"text": "the test"}}
    return {"locations": [_place(kernel.file, kernel.line)], "relatedLocations": [related]}


def _place(file: str, number: int | None) -> dict[str, Any]:
    region = {} if number is None else {"region": {"startLine": max(number, 1)}}
    return {"physicalLocation": {"artifactLocation": {"uri": quote(one_line(file))}, **region}}
