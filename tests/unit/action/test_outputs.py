"""What a run's end means to the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from action import outputs
from action.errors import StepError

REPORT = outputs.Report(misaligned=2, findings=3, exit_code=1)
GREEN = outputs.Report(misaligned=0, findings=0, exit_code=0)


def test_parse_report__of_a_run__has_the_counts():
    text = json.dumps({"summary": {"misaligned": 2, "findings": 3, "aligned": 9}, "exit_code": 1, "results": []})
    assert outputs.parse_report(text) == REPORT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"summary": 1, "exit_code": 0}',
        '{"summary": {"misaligned": "x"}}',
        "[" * 100_000,
    ],
    ids=[
        "empty",
        "cut",
        "list",
        "null",
        "no keys",
        "summary is a number",
        "count is a word",
        "too deep",
    ],
)
def test_parse_report__damaged__is_none(text: str):
    assert outputs.parse_report(text) is None


@pytest.mark.parametrize(
    ("status", "report", "final"),
    [
        (0, GREEN, 0),
        (1, REPORT, 1),
        (3, None, 3),
        (130, GREEN, 130),
        (-9, None, 137),
        (0, None, 2),
        (0, REPORT, 2),
        (0, outputs.Report(0, 0, 256), 2),
    ],
    ids=[
        "green",
        "red",
        "no report",
        "interrupted",
        "killed",
        "green without report",
        "report says red",
        "one byte",
    ],
)
def test_final_status__of_process_and_report__is_green_only_where_both_are(
    status: int, report: outputs.Report | None, final: int
):
    assert outputs.final_status(status, report) == final


def test_step_outputs__with_a_report__names_the_files():
    assert outputs.step_outputs(1, REPORT, Path("/w/out")) == {
        "exit-status": "1", "conclusion": "failure", "misaligned": "2", "findings": "3",
        "report-json": "/w/out/report.json", "artifact-dir": "/w/out", "upload": "/w/out",
    }  # fmt: skip


def test_step_outputs__nothing_written__has_no_path():
    assert outputs.step_outputs(139, None, None) == {
        "exit-status": "139", "conclusion": "error", "misaligned": "", "findings": "",
        "report-json": "", "artifact-dir": "", "upload": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("server", "has"),
    [
        ("https://github.com", True),
        ("https://company.ghe.com", True),
        ("https://github.company.com", False),
        ("https://github.com.evil.test", False),
    ],
)
def test_has_artifacts__of_a_server__is_not_so_on_enterprise_server(server: str, has: bool):
    assert outputs.has_artifacts(server) is has


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (0, "success"),
        (1, "failure"),
        (2, "usage"),
        (3, "nothing-compared"),
        (4, "unavailable"),
        (130, "interrupted"),
    ],
)
def test_conclusion__of_the_table__is_its_word(status: int, word: str):
    assert outputs.conclusion(status) == word


def test_output_block__value_of_many_lines__cannot_name_another_output():
    block = outputs.output_block("folder", "a\nexit-status=0\nEOF", "d1")
    assert block == "folder<<d1\na\nexit-status=0\nEOF\nd1\n"


def test_output_block__value_with_the_delimiter__is_refused():
    with pytest.raises(StepError, match="the output 'folder' contains its own delimiter"):
        outputs.output_block("folder", "a\nd1\nexit-status=0", "d1")


def test_doubt__report_of_the_command__is_none():
    assert outputs.doubt(1, outputs.Report(2, 3, 1), Path("out")) == ""
    assert outputs.doubt(2, None, Path("out")) == ""


def test_doubt__no_report_after_success__is_said():
    assert outputs.doubt(0, None, Path("out")) == "the command ended with 0, but wrote no report.json into 'out'."


def test_doubt__report_that_says_otherwise__is_said():
    assert outputs.doubt(1, outputs.Report(0, 0, 0), Path("out")) == (
        "the command ended with 1, but 'out/report.json' says 0: something else wrote it. The report is not shown, and "
        "the command's status counts."
    )


def test_shown_commands__of_what_was_printed__are_those_that_show_something():
    printed = "::error file=a.py,line=3::x%0Ay\nplain\n::add-mask::a\n::set-env name=A::b\n ::error ::z\n::notice title=t::n\n"
    assert outputs.shown_commands(printed) == "::error file=a.py,line=3::x%0Ay\n::notice title=t::n\n"


@pytest.mark.parametrize(
    ("printed", "url"),
    [
        (
            "comment: https://github.com/o/r/pull/1#issuecomment-2\n",
            "https://github.com/o/r/pull/1#issuecomment-2",
        ),
        ("comment: https://a.b/c (updated)\nmore\n", "https://a.b/c"),
        ("comment: not posted (degraded)\n", ""),
        ("see comment: https://a.b\n", ""),
        ("comment: javascript:alert(1)\n", ""),
        ("", ""),
    ],
)
def test_comment_url__of_what_was_printed__is_the_address(printed: str, url: str):
    assert outputs.comment_url(printed) == url


def test_workflow_command__many_lines__is_one_command():
    assert (
        outputs.workflow_command("error", "50 %\r\n::set-env::")
        == "::error title=ci-autotest::50 %25%0D%0A::set-env::\n"
    )
