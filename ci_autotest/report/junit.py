"""``junit.xml``: one testcase for each (test, candidate), one testsuite for each candidate.

A testcase fails exactly where a finding counts against the run, or where the test failed and no
finding says why. What is accepted or tolerated is told in ``system-out`` and is no failure; what
compared nothing is skipped, never passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.report.atomic import write_text
from ci_autotest.report.markdown_text import line, plain, plural
from ci_autotest.report.standing import headline, unsupported_sentence
from ci_autotest.result import counts_against

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ci_autotest.result import BrokenTest, Finding, Location, RunResult, TestResult

_BAD: Final = frozenset({"misaligned", "crashed", "timed_out"})
_SUITE: Final = "ci-autotest"


def write(result: RunResult, path: Path) -> None:
    """Write the run as JUnit XML.

    Raises:
        OutputError: The folder cannot be written; what was there before is untouched.
    """
    write_text(path, render(result))


def render(result: RunResult) -> str:
    """Return the run as JUnit XML, in UTF-8."""
    from junit_xml import to_xml_report_string  # noqa: PLC0415 - the parent answers `--help` without it

    # Not prettyprint: it parses the whole document once more, and loses line ends in attributes.
    xml: str = to_xml_report_string(_suites(result), prettyprint=False, encoding="utf-8")
    return xml


def _suites(result: RunResult) -> list[Any]:
    findings, prefix = {finding.id: finding for finding in result.findings}, result.environment.folder
    names = dict.fromkeys([*(info.name for info in result.candidates), *(item.candidate for item in result.results)])
    suites = []
    for name in names:
        results = [item for item in result.results if item.candidate == name]
        suites.append(
            _suite(
                f"{_SUITE}[{line(name)}]",
                [_case(item, findings, prefix) for item in results],
                result,
                results,
            )
        )
    if result.broken:
        suites.append(_suite(_SUITE, [_broken_case(item, prefix) for item in result.broken], result, []))
    return suites


def _suite(name: str, cases: list[Any], result: RunResult, results: Sequence[TestResult]) -> Any:  # noqa: ANN401
    from junit_xml import TestSuite  # noqa: PLC0415

    compared = sum(item.cases.compared for item in results)
    return TestSuite(name, cases, properties={"seed": str(result.seed), "cases": str(compared)})


def _case(item: TestResult, findings: Mapping[str, Finding], prefix: str) -> Any:  # noqa: ANN401 - junit-xml has no types
    from junit_xml import TestCase  # noqa: PLC0415

    file, name = _names(item.test, item.location)
    own = [findings[name] for name in item.findings if name in findings]
    counting = [finding for finding in own if counts_against(finding)]
    case = TestCase(
        f"{name}[{line(item.candidate)}]", file, _time_s(item.duration_s), stdout=_told(item, own),
        **_place(item.location, prefix),
    )  # fmt: skip
    if counting:
        kind = "misaligned" if item.outcome not in _BAD else item.outcome
        case.add_failure_info(line(headline(counting[0])), "\n\n".join(map(_whole, counting)), kind)
    elif item.outcome in _BAD and not own:
        message = line(item.reason or f"{item.outcome.replace('_', ' ')}, and no finding says why")
        case.add_failure_info(message, message, item.outcome)
    elif not item.cases.compared:
        case.add_skipped_info(_reason(item))
    return case


def _broken_case(item: BrokenTest, prefix: str) -> Any:  # noqa: ANN401 - junit-xml has no types
    from junit_xml import TestCase  # noqa: PLC0415

    file, name = _names(item.test, item.location)
    case = TestCase(name, file, _time_s(0.0), **_place(item.location, prefix))
    case.add_error_info(
        line(item.message) or "broken",
        plain(f"{item.message}\n\n{item.traceback}").strip(),
        "broken",
    )
    return case


def _time_s(duration_s: float) -> float:
    """Return a duration that is written: the library leaves 0 out, and not every reader can do without one."""
    return max(duration_s, 1e-6)


def _place(location: Location | None, prefix: str) -> dict[str, str]:
    """Return where a test is, from the repository's top: what annotations are put beside."""
    if location is None:
        return {}
    path = "/".join(part for part in (prefix.strip("/"), location.file) if part not in {"", "."})
    return {"file": line(path), "line": str(location.line)}


def _names(test: str, location: Location | None) -> tuple[str, str]:
    """Return the classname, which is the file, and the test's name in it; a file that is broken as a whole is both."""
    file, _, name = test.partition("::")
    return line(location.file if location is not None else file), line(name or file)


def _whole(finding: Finding) -> str:
    parts = (
        finding.message or headline(finding),
        finding.program,
        finding.replay and f"replay: {finding.replay}",
    )
    return "\n\n".join(plain(part) for part in parts if part)


def _told(item: TestResult, own: Sequence[Finding]) -> str:
    """Return what the counts say, and the findings that do not make the testcase fail."""
    attempts = item.attempts.accepted + item.attempts.rejected
    lines = [
        f"{plural(item.cases.compared, 'case')} compared, {item.attempts.rejected:,} of {attempts:,} attempts rejected"
    ]
    if item.outcome == "flaky":
        lines.append(f"flaky: {item.cases.flaky:,} of {plural(item.cases.compared, 'case')} differ from run to run")
    if item.unsupported:
        lines.append(unsupported_sentence(item))
    lines += [_tolerated(finding) for finding in own if not counts_against(finding)]
    return "\n".join(plain(each) for each in lines)


def _tolerated(finding: Finding) -> str:
    known = f"accepted ({finding.known})" if finding.known is not None else ""
    why = known or (finding.outcome if finding.outcome == "flaky" else f"{finding.kind}, blame: {finding.blame}")
    unconfirmed = "" if finding.confirmed else ", not confirmed"
    return f"does not fail the run: {why}{unconfirmed}: {finding.message or headline(finding)}"


def _reason(item: TestResult) -> str:
    if item.reason:
        return line(item.reason)
    if item.attempts.rejected and not item.attempts.accepted:
        return f"the reference rejected all {plural(item.attempts.rejected, 'attempt')}"
    return f"{item.outcome.replace('_', ' ')}: nothing was compared"
