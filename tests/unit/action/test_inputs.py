"""The action's inputs: what reaches the command line, and what does not."""

from __future__ import annotations

import json

import pytest

from action import inputs
from action.errors import StepError
from action.options import CHOICES

HOSTILE = [
    "; rm -rf /",
    "$(touch owned)",
    "`id`",
    "a b",
    "--help",
    "-x",
    "'\"\\",
    "* ?",
    "ünï\u2028code",
    "&& exit 0",
]


def argv_of(environ: dict[str, str]) -> list[str]:
    return inputs.cli_argv(environ, inputs.given_options(environ))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"INPUT_BASELINE": "auto"}, "the input 'baseline' is 'auto': only mode 'report' without 'paths'"),
        ({"INPUT_FAIL_ON": "new"}, "the input 'fail-on' is 'new', and there is no 'baseline': only mode"),
        ({"INPUT_MODE": "report", "INPUT_PATHS": "a\nb", "INPUT_BASELINE": "auto"}, "the input 'baseline' is 'auto'"),
        ({"INPUT_FAIL_ON": "new", "INPUT_BASELINE": "base"}, ""),
        ({"INPUT_MODE": "report", "INPUT_BASELINE": "auto", "INPUT_FAIL_ON": "new"}, ""),
    ],
    ids=["auto beside tests", "new without one", "auto for a merge", "new with one", "auto for a publisher"],
)
def test_refuse_baseline__of_another_run__only_where_no_step_may_read_it(given: dict[str, str], why: str):
    if not why:
        inputs.refuse_baseline(given)
        return
    with pytest.raises(StepError) as caught:
        inputs.refuse_baseline(given)
    assert str(caught.value).startswith(why)


VERIFY = {"INPUT_MODE": "verify", "INPUT_PATHS": "ref.py:softmax\nkernels/--a.py"}


def test_cli_argv__mode_verify__has_its_options_and_two_files():
    given = {
        **VERIFY, "INPUT_BUDGET": "30s", "INPUT_SEED": "7",
        "INPUT_OPTIONS": "--forward-only\n--allow=mm\n--allow=--x\n--torch=cpu",
    }  # fmt: skip
    assert argv_of(given) == [
        "verify", "--budget=30s", "--seed=7", "--forward-only", "--allow=mm", "--allow=--x",
        "--output=autotest-report", "--", "ref.py:softmax", "kernels/--a.py",
    ]  # fmt: skip
    inputs.refuse_verification(given)
    assert inputs.task(given) == "run"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"INPUT_PATHS": "a.py"}, "the input 'paths' has 1 lines: mode 'verify' takes two, REFERENCE and CANDIDATE."),
        ({"INPUT_CANDIDATE": "a\nb"}, "the input 'candidate' has no effect in mode 'verify': remove it."),
        ({"INPUT_FAIL_ON": "new"}, "the input 'fail-on' has no effect in mode 'verify': remove it."),
        ({"INPUT_RUNTIME": "container"}, "the input 'runtime' is 'container', in which mode 'verify' could make no"),
        ({"INPUT_OPTIONS": "--strictness=ulp"}, "the input 'options' has '--strictness=ulp', which is no option in mode"),
        ({"INPUT_OPTIONS": "--forward-only=1"}, "the input 'options' has '--forward-only=1', but --forward-only has no"),
        ({"INPUT_OPTIONS": "--allow"}, "the input 'options' has '--allow', which has no value: write --allow=VALUE."),
        ({"INPUT_OPTIONS": "--allow=a\n--allow=a"}, "the input 'options' has '--allow=a', but another line sets"),
    ],
    ids=["one path", "candidate", "fail-on", "container", "option", "flag", "value", "twice"],
)  # fmt: skip
def test_refuse_verification__what_it_does_not_take__is_said(given: dict[str, str], why: str):
    def refused() -> None:
        inputs.refuse_verification({**VERIFY, **given})
        argv_of({**VERIFY, **given})

    with pytest.raises(StepError) as caught:
        refused()
    assert str(caught.value).startswith(why)


def test_cli_argv__no_input__runs_into_the_default_folder():
    assert argv_of({}) == ["run", "--output=autotest-report", "--"]


def test_cli_argv__every_input__is_one_element_each():
    environ = {
        "INPUT_PATHS": "autotests\n\n  more/autotest_a.py::b  \n", "INPUT_CONFIG": "autotest.yml",
        "INPUT_CANDIDATE": "compiled\nkernels\n", "INPUT_CASES": "20", "INPUT_BUDGET": "10m",
        "INPUT_SEED": "commit", "INPUT_OPTIONS": "--strictness=ulp\n--torch=cpu\n  --set=known=[{operator: a b}]\n--speed",
        "INPUT_SHARD": "1/2", "INPUT_DEVICE": "cpu", "INPUT_BASELINE": "base",
        "INPUT_FAIL_ON": "new", "INPUT_OUTPUT": "out",
    }  # fmt: skip
    assert argv_of(environ) == [
        "run", "--config=autotest.yml", "--cases=20", "--budget=10m", "--seed=commit",
        "--shard=1/2", "--device=cpu", "--baseline=base", "--fail-on=new", "--strictness=ulp",
        "--set=known=[{operator: a b}]", "--speed", "--candidate=compiled", "--candidate=kernels", "--output=out", "--",
        "autotests", "more/autotest_a.py::b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "task"),
    [
        ({}, "run"),
        ({"INPUT_MODE": "auto", "GITHUB_EVENT_NAME": "pull_request"}, "run"),
        ({"INPUT_MODE": "auto", "GITHUB_EVENT_NAME": "workflow_run"}, "publish"),
        ({"INPUT_MODE": "run", "GITHUB_EVENT_NAME": "workflow_run"}, "run"),
        ({"INPUT_MODE": "report", "INPUT_PATHS": "shard-1"}, "merge"),
        ({"INPUT_MODE": "report"}, "publish"),
    ],
    ids=["default", "pull request", "after a run", "told to run", "told to merge", "told to publish"],
)
def test_task__mode_and_event__decide(environ: dict[str, str], task: str):
    assert inputs.task(environ) == task


@pytest.mark.parametrize(
    ("environ", "is_installed", "runtime"),
    [
        ({}, False, "python"),
        ({}, True, "python"),
        ({"JOB_CONTAINER": "4f3a"}, True, "host"),
        ({"JOB_CONTAINER": "4f3a"}, False, "python"),
        ({"JOB_CONTAINER": "4f3a", "INPUT_RUNTIME": "container"}, True, "container"),
    ],
    ids=["runner", "runner that has it", "our image", "another image", "told"],
)
def test_runtime__of_a_job__is_told_or_found(environ: dict[str, str], is_installed: bool, runtime: str):
    assert inputs.runtime(environ, is_installed=is_installed) == runtime


def test_runtime__unknown__names_the_known():
    with pytest.raises(StepError) as raised:
        inputs.runtime({"INPUT_RUNTIME": "docker"}, is_installed=False)
    assert str(raised.value) == "the input 'runtime' is 'docker': give one of host, python, container."


def test_comment_argv__reports_that_are_merged_here__names_their_folder_last():
    environ = {
        "INPUT_MODE": "report", "INPUT_PATHS": "a\nb", "INPUT_ARTIFACT_NAME": "r",
        "INPUT_BASELINE": "base", "INPUT_CONFIG": "c.yml",
    }  # fmt: skip
    assert inputs.comment_argv(environ, "/w/out") == [
        "comment", "--when=failures", "--name=r", "--artifact-name=r", "--config=c.yml", "--baseline=base", "--", "/w/out",
    ]  # fmt: skip


def test_comment_argv__run__is_numbered_and_has_the_default_name():
    environ = {"INPUT_MODE": "report", "INPUT_RUN_ID": "77", "INPUT_COMMENT": "always"}
    assert inputs.comment_argv(environ, "/w/out") == [
        "comment", "--when=always", "--name=ci-autotest", "--artifact-name=ci-autotest-report", "--baseline=auto-if-any",
        "--run-id=77", "--output=autotest-report",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"JOB": "test"}, "ci-autotest-report-test"),
        ({"JOB": "test", "INPUT_ARTIFACT_NAME": "r"}, "r"),
        ({"JOB": "merge", "INPUT_MODE": "report", "INPUT_PATHS": "a"}, "ci-autotest-report"),
        ({"JOB": "test", "MATRIX": '{"os": "ubuntu", "n": 3}', "JOB_INDEX": "1"}, "ci-autotest-report-test-ubuntu_3"),
        ({"INPUT_ARTIFACT_NAME": "shard", "MATRIX": '{"shard": 2}', "JOB_INDEX": "1"}, "shard-2"),
        ({"INPUT_ARTIFACT_NAME": "r", "MATRIX": '{"a": "x/y"}', "JOB_INDEX": "0"}, "r-x_y-0"),
        ({"INPUT_ARTIFACT_NAME": "r", "MATRIX": '{"a": "x:y"}', "JOB_INDEX": "1"}, "r-x_y-1"),
        ({"INPUT_ARTIFACT_NAME": "r", "MATRIX": '{"a": {"b": [1]}}', "JOB_INDEX": "4"}, "r-b_1-4"),
        ({"INPUT_ARTIFACT_NAME": "r", "MATRIX": '{"a": "::"}', "JOB_INDEX": "4"}, "r-4"),
        ({"INPUT_ARTIFACT_NAME": "r", "MATRIX": "null", "JOB_INDEX": "0"}, "r"),
        ({"INPUT_ARTIFACT_NAME": "r", "MATRIX": "{broken", "JOB_INDEX": "0"}, "r"),
    ],
)
def test_uploaded_name__is_one_for_each_job_and_leg(environ: dict[str, str], name: str):
    assert inputs.uploaded_name(environ) == name


@pytest.mark.parametrize(
    ("job", "legs"),
    [
        ("j" * 30, [{"a": "x" * 90}, {"a": "x" * 91}]),
        ("j" * 90, [{"a": "x" * 90}, {"a": "x" * 91}]),
        ("t", [{"a": "x-y", "b": "z"}, {"a": "x", "b": "y-z"}, {"a": "x_y", "b": "z"}, {"a": "x", "b": "y_z"}]),
        ("t", [{"a": True}, {"a": "true"}, {"a": None}, {"a": "null"}, {"a": "None"}, {"a": 1.5}, {"a": "1.5"}]),
        ("t", [{"a": ""}, {"a": "::"}, {"a": "."}]),
    ],
)
def test_uploaded_name__legs_that_look_alike__are_told_apart(job: str, legs: list[dict[str, object]]):
    names = [
        inputs.uploaded_name({"JOB": job, "MATRIX": json.dumps(leg), "JOB_INDEX": str(i)}) for i, leg in enumerate(legs)
    ]
    assert len(set(names)) == len(legs)
    assert max(map(len, names)) <= 100


@pytest.mark.parametrize("value", ["", "0", "7 --when=always", "$(id)", "\u0667"])
def test_run_id__no_number__is_refused(value: str):
    with pytest.raises(StepError, match=r"mode 'report' publishes the artifacts of the run in a `workflow_run` event"):
        inputs.comment_argv({"INPUT_MODE": "report", "INPUT_RUN_ID": value}, "")


@pytest.mark.parametrize("name", [*(name for name in inputs.SINGLE if name not in CHOICES), "output"])
def test_cli_argv__hostile_value__stays_one_option(name: str):
    plain = argv_of({inputs.variable(name): "plain"})
    for value in (each.replace("\u2028", "") for each in HOSTILE):
        argv = argv_of({inputs.variable(name): value})
        assert argv.count(f"--{name}={value.strip()}") == 1, value
        assert argv[-1] == "--"
        assert [part.partition("=")[0] for part in argv] == [part.partition("=")[0] for part in plain]


@pytest.mark.parametrize("value", HOSTILE[:-2])
def test_cli_argv__hostile_path__stands_behind_the_end_of_options(value: str):
    assert argv_of({"INPUT_PATHS": value}) == [
        "run",
        "--output=autotest-report",
        "--",
        value,
    ]


def test_cli_argv__hostile_candidate__is_the_value_of_an_option():
    argv = argv_of({"INPUT_CANDIDATE": "--output=/etc"})
    assert argv == ["run", "--candidate=--output=/etc", "--output=autotest-report", "--"]


def test_cli_argv__mode_report__merges_the_folders():
    environ = {
        "INPUT_MODE": "report", "INPUT_PATHS": "shard-1\nshard-2", "INPUT_OUTPUT": "all",
        "INPUT_CASES": "9", "INPUT_FAIL_ON": "never",
    }  # fmt: skip
    assert argv_of(environ) == [
        "report",
        "--fail-on=never",
        "--output=all",
        "--",
        "shard-1",
        "shard-2",
    ]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"INPUT_OUTPUT": "a\nb"}, "the input 'output' has 2 lines: give one value."),
        ({"INPUT_FAIL_ON": "new\r\n--cases=0"}, "the input 'fail-on' has 2 lines: give one value."),
        ({"INPUT_MODE": "runn"}, "the input 'mode' is 'runn': give one of auto, run, report, verify."),
        ({"INPUT_DEVICE": "-v /:/host"}, "the input 'device' is '-v /:/host': give one of auto, cpu, cuda."),
        (
            {"INPUT_MODE": "report", "INPUT_PATHS": "a", "INPUT_OPTIONS": "--strictness=ulp"},
            "the input 'options' has '--strictness=ulp', but mode 'report' runs no test: remove it.",
        ),
    ],
    ids=["two lines", "carriage return", "unknown mode", "unknown device", "an option in mode report"],
)
def test_cli_argv__cannot_be_meant__says_what_to_write(environ: dict[str, str], message: str):
    with pytest.raises(StepError) as raised:
        argv_of(environ)
    assert str(raised.value) == message


def test_comment_policy__unknown__names_the_known():
    with pytest.raises(StepError) as raised:
        inputs.comment_policy({"INPUT_COMMENT": "failure", "INPUT_MODE": "report"})
    assert str(raised.value) == "the input 'comment' is 'failure': give one of failures, changes, always, off."


@pytest.mark.parametrize("value", ["failures", "changes", "always"])
def test_comment_policy__of_a_job_that_runs_tests__says_where_to_comment(value: str):
    with pytest.raises(StepError) as raised:
        inputs.comment_policy({"INPUT_COMMENT": value})
    assert str(raised.value) == (
        f"the input 'comment' is '{value}', but a job that runs tests gets no token: remove it, and comment in a job of "
        "its own, with `needs:` this job, `mode: report` and the permissions `actions: read` and `pull-requests: write`."
    )
    assert inputs.comment_policy({"INPUT_COMMENT": "off"}) == "off"


def test_install_arguments__lines__options_are_split_and_requirements_are_not():
    lines = "torch>=2.4; python_version < '3.12'\n-r 'my requirements.txt'\n\n; rm -rf /\n-e ."
    assert inputs.install_arguments({"INPUT_INSTALL": lines}) == [
        "torch>=2.4; python_version < '3.12'", "-r", "my requirements.txt", "; rm -rf /", "-e", ".",
    ]  # fmt: skip


def test_install_arguments__unclosed_quote__says_which_line():
    with pytest.raises(StepError) as raised:
        inputs.install_arguments({"INPUT_INSTALL": "-r 'a"})
    assert (
        str(raised.value)
        == "the line \"-r 'a\" of the input 'install' cannot be parsed: No closing quotation. Correct its quotes."
    )
