"""``junit.xml``: one testcase for each (test, candidate), one testsuite for each file and candidate.

The file is valid for Jenkins' xUnit plugin (junit-10.xsd, jenkinsci/xunit-plugin at 031e285). The schema has no
attribute for a line, so a test's line is in the text and its file in the testsuite.

A testcase fails for what fails the run under its ``fail_on``. Other findings are listed in ``system-out`` and are no
failures. A test that compared nothing is skipped, never passed; one that is expected to fail and does is skipped too,
as in pytest.
"""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from ci_autotest.report.atomic import write_text
from ci_autotest.report.cause_text import in_order, sentence_of
from ci_autotest.report.document import one_line, plain
from ci_autotest.report.finding_program import program_or_reason
from ci_autotest.report.links import repository_path
from ci_autotest.report.power_text import power_lines, power_sentence, unscored
from ci_autotest.report.verdict_line import headline, partial_sentences, unsupported_sentence, verdict
from ci_autotest.values.amounts import plural
from ci_autotest.values.delegation import DelegationCounts
from ci_autotest.values.finding import Finding, counts_against
from ci_autotest.values.judgement import FAILED, CauseKind
from ci_autotest.values.power import FAILURES, power_of_tests
from ci_autotest.values.result import BrokenTest
from ci_autotest.values.speed import SpeedResult
from ci_autotest.values.verdict import FAILED_OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ci_autotest.values.finding import Location
    from ci_autotest.values.judgement import Cause
    from ci_autotest.values.result import RunResult, TestResult


def write(result: RunResult, path: Path) -> None:
    """Write the run as JUnit XML.

    Raises:
        OutputError: The folder cannot be written; the earlier content is untouched.
    """
    write_text(path, render(result))


def render(result: RunResult) -> str:
    """Return the run as JUnit XML, in UTF-8."""
    root = ET.Element("testsuites")
    for suite in _suites(result):
        root.append(suite.build_xml_doc(encoding="utf-8"))
    totals = {name: sum(int(suite.get(name, "0")) for suite in root) for name in ("tests", "failures", "errors")}
    root.attrib.update({name: str(count) for name, count in totals.items()})
    for element in root.iter():
        element.attrib.pop("disabled", None)  # junit_xml adds it, and the schema does not know it
        if "time" in element.attrib:
            element.set("time", f"{float(element.attrib['time']):.3f}")
    xml: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml.decode()


def _suites(result: RunResult) -> list[Any]:
    findings, prefix = {finding.id: finding for finding in result.findings}, result.environment.folder
    judged = [cause for cause in in_order(result) if cause.status == FAILED and cause.kind is not CauseKind.BROKEN]
    groups: dict[tuple[str, str], list[TestResult]] = {}
    for item in result.results:
        groups.setdefault((item.candidate, _names(item.test, item.location)[0]), []).append(item)
    suites = [
        _suite(
            f"{file}[{one_line(name)}]",
            file,
            [_case(item, findings, _failures(item, judged), prefix) for item in items],
            result,
            items,
        )
        for (name, file), items in groups.items()
    ]
    broken: dict[str, list[BrokenTest]] = {}
    # What ended the run, or kept it from comparing anything, is no test's, so it is a testcase of its own.
    why = result.error.message if result.error is not None else ""
    if not why and result.exit_code and not result.results and not result.broken:
        why = result.notes[0] if result.notes else verdict(result)
    ended = [BrokenTest(test="ci-autotest", message=why)] if why else []
    for each in (*result.broken, *ended):
        broken.setdefault(_names(each.test, each.location)[0], []).append(each)
    suites += _power_suites(result)
    suites += [
        _suite(file, file, [_broken_case(item, prefix) for item in items], result, []) for file, items in broken.items()
    ]
    return suites


def _suite(name: str, file: str, cases: list[Any], result: RunResult, results: Sequence[TestResult]) -> Any:
    from junit_xml import TestSuite  # noqa: PLC0415 - the parent answers `--help` without it

    compared = sum(item.cases.compared for item in results)
    path = repository_path(result.environment.folder, file)
    written = datetime.now(timezone.utc)
    return TestSuite(
        name, cases, file=one_line(path), hostname=one_line(platform.node()) or "localhost",
        timestamp=written.isoformat(timespec="seconds").removesuffix("+00:00"),
        properties={"seed": str(result.seed), "cases": str(compared)} | _delegated(results),
    )  # fmt: skip


def _delegated(results: Sequence[TestResult]) -> dict[str, str]:
    """Return how many cases their compiler ran wholly, in part and not at all; nothing where that is not asked."""
    counts = sum((item.delegation for item in results), DelegationCounts())
    found = {f"delegated_{name}": str(getattr(counts, name)) for name in DelegationCounts.__struct_fields__}
    return found if counts != DelegationCounts() else {}


def _case(item: TestResult, findings: Mapping[str, Finding], failures: Sequence[Cause], prefix: str) -> Any:
    from junit_xml import TestCase  # noqa: PLC0415

    file, name = _names(item.test, item.location)
    own = [findings[name] for name in item.findings if name in findings]
    spared = [finding for finding in own if all(cause.subject is not finding for cause in failures)]
    case = TestCase(
        f"{name}[{one_line(item.candidate)}]", file, _time_s(item.duration_s),
        stdout=_place(item.location, prefix) + _details(item, spared),
    )  # fmt: skip
    if failures:
        case.add_failure_info(
            one_line(sentence_of(failures[0])), "\n\n".join(map(_whole, failures)), _kind(item, failures[0])
        )
    elif not item.cases.compared:
        case.add_skipped_info(_reason(item))
    elif item.xfail is not None and item.outcome == "known":
        case.add_skipped_info(one_line(item.xfail.sentence))
    return case


def _failures(item: TestResult, judged: Sequence[Cause]) -> list[Cause]:
    """Return the causes that a testcase fails for."""

    def fails(cause: Cause) -> bool:
        if isinstance(cause.subject, Finding):
            return cause.subject.id in item.findings
        is_its = (cause.test, cause.candidate or item.candidate) == (item.test, item.candidate)
        return is_its and (cause.kind is not CauseKind.UNEXPECTED_PASS or item.cases.compared > 0)

    return list(filter(fails, judged))


def _kind(item: TestResult, cause: Cause) -> str:
    """Return the type of a failure: an outcome, or what it is."""
    match cause.subject:
        case Finding(outcome=outcome):
            return item.outcome if item.outcome in FAILED_OUTCOMES else outcome
        case SpeedResult(verdict=verdict):
            return verdict
        case _:
            return "passed" if cause.kind is CauseKind.UNEXPECTED_PASS else item.outcome


def _power_suites(result: RunResult) -> list[Any]:
    """Return a testcase for the power of each test, and one for the score of all, which fails if it is too low."""
    from junit_xml import TestCase  # noqa: PLC0415

    if result.power is None:
        return []
    total = TestCase("power", "ci-autotest", _time_s(0.0), stdout=plain(power_sentence(result.power)))
    if result.power.is_too_low:
        total.add_failure_info(one_line(power_sentence(result.power)), "", "power")
    cases = [total]
    for test in result.power.tests:
        file, name = _names(test.test, None)
        own = power_of_tests([test], result.power.seed)
        texts = [plain(each.strip()) for each in (power_sentence(own), *power_lines(own))]
        case = TestCase(f"{name}[power]", file, _time_s(0.0), stdout="\n".join(texts))
        if test.unscored in FAILURES:
            case.add_error_info(one_line(unscored(test)), "", "power")
        elif test.score is None:
            case.add_skipped_info(one_line(unscored(test)))
        cases.append(case)
    return [_suite("power", "ci-autotest", cases, result, [])]


def _broken_case(item: BrokenTest, prefix: str) -> Any:
    from junit_xml import TestCase  # noqa: PLC0415

    file, name = _names(item.test, item.location)
    case = TestCase(name, file, _time_s(0.0), stdout=_place(item.location, prefix))
    case.add_error_info(
        one_line(item.message) or "broken",
        plain(f"{item.message}\n\n{item.traceback}").strip(),
        "broken",
    )
    return case


def _time_s(duration_s: float) -> float:
    # junit_xml leaves a duration of 0 out, and some readers require the attribute.
    return max(duration_s, 1e-6)


def _place(location: Location | None, prefix: str) -> str:
    """Return the test's file from the repository's top with its line, as the first line of a text."""
    if location is None:
        return ""
    return f"{one_line(repository_path(prefix, location.file))}:{location.line}\n"


def _names(test: str, location: Location | None) -> tuple[str, str]:
    """Return the classname, which is the file, and the test's name; a file that is broken as a whole is both."""
    file, _, name = test.partition("::")
    return one_line(location.file if location is not None else file), one_line(name or file)


def _whole(cause: Cause) -> str:
    """Return all that is known of a cause."""
    if not isinstance(finding := cause.subject, Finding):
        return plain(sentence_of(cause))
    parts = (
        finding.message or headline(finding),
        program_or_reason(finding),
        finding.replay and f"replay: {finding.replay}",
    )
    return "\n\n".join(plain(part) for part in parts if part)


def _details(item: TestResult, spared: Sequence[Finding]) -> str:
    """Return the counts, and the findings that do not make the testcase fail."""
    attempts = item.attempts.accepted + item.attempts.rejected
    lines = [
        f"{plural(item.cases.compared, 'case')} compared, {item.attempts.rejected:,} of {attempts:,} attempts rejected"
    ]
    if item.outcome == "flaky":
        lines.append(f"flaky: {item.cases.flaky:,} of {plural(item.cases.compared, 'case')} differ from run to run")
    lines += partial_sentences(item)
    lines += map(_tolerated, spared)
    return "\n".join(plain(each) for each in lines)


def _tolerated(finding: Finding) -> str:
    known = f"accepted ({finding.known})" if finding.known is not None else ""
    why = known or (finding.outcome if finding.outcome == "flaky" else f"{finding.kind}, blame: {finding.blame}")
    why = f"{why}, not counted" if counts_against(finding) else why
    unconfirmed = "" if finding.confirmed else ", not confirmed"
    return f"does not fail the run: {why}{unconfirmed}: {finding.message or headline(finding)}"


def _reason(item: TestResult) -> str:
    why = [item.reason] if item.reason else []
    if item.unsupported:
        why.append(unsupported_sentence(item))
    if why:
        return one_line("; ".join(why))
    if item.attempts.rejected and not item.attempts.accepted:
        return f"the reference rejected all {plural(item.attempts.rejected, 'attempt')}"
    return f"{item.outcome.replace('_', ' ')}: nothing was compared"
