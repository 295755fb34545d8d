"""Workflow commands: beside the test's line, ten of a kind, and none that a name begins."""

from __future__ import annotations

import re

import msgspec
import pytest

from ci_autotest.report.annotations import annotate
from ci_autotest.values.finding import Location
from tests import report_samples as samples

COMMAND = re.compile(r"::(error|notice)( [a-z]+=[^:\r\n]*)?::[^\r\n]*")


def test_annotate__finding__is_an_error_at_the_test_s_line() -> None:
    found = samples.finding(message="misaligned: x\n  100 % off", replay="")

    assert annotate(samples.misaligned(findings=(found,)), "lib") == (
        "::error file=lib/autotests/autotest_norms.py,line=12,"
        "title=torch.nn.functional.layer_norm on kernels%3A the value is off by up to 0.0041"
        "::misaligned: x%0A  100 %25 off",
    )


def test_annotate__finding_of_a_known_kernel__is_an_error_at_the_kernel_s_line_and_names_the_test() -> None:
    found = samples.finding(message="misaligned: x", replay="python repro.py")
    kernels = msgspec.structs.replace(
        samples.KERNELS, kernels={samples.OPERATOR: Location(file="lib/norms.py", line=7)}
    )

    assert annotate(samples.misaligned(findings=(found,), candidates=(kernels,)), "lib") == (
        "::error file=lib/norms.py,line=7,"
        "title=torch.nn.functional.layer_norm on kernels%3A the value is off by up to 0.0041"
        f"::misaligned: x%0Areplay: python repro.py%0Atest: {samples.TEST}",
    )


def test_annotate__broken_test__is_an_error_too() -> None:
    (command,) = annotate(samples.run(broken=(samples.broken(),)))

    assert command.startswith(
        "::error file=autotests/autotest_pool.py,line=3,title=autotests/autotest_pool.py is broken::"
    )


@pytest.mark.parametrize(
    "changes", [{"known": "int32 indices"}, {"kind": "leniency"}, {"blame": "reference"}, {"outcome": "flaky"}]
)
def test_annotate__finding_that_does_not_count__is_none(changes: dict) -> None:
    assert annotate(samples.misaligned(findings=(samples.finding(**changes),))) == ()


def test_annotate__eleven__names_the_last_in_one_line() -> None:
    findings = tuple(samples.numbered(index) for index in range(10))
    broken = (samples.broken(),)

    commands = annotate(samples.misaligned(findings=findings, broken=broken))

    assert [command.partition(" ")[0] for command in commands] == ["::error"] * 10 + ["::notice"]
    assert commands[-1] == "::notice title=ci-autotest::1 more finding: autotests/autotest_pool.py"


def test_annotate__ten_thousand__is_one_line_of_4096_characters_that_counts_the_rest() -> None:
    findings = tuple(samples.numbered(index) for index in range(10_000))

    *errors, notice = annotate(samples.misaligned(findings=findings))

    message = notice.removeprefix("::notice title=ci-autotest::")
    named = len(re.findall(r"torch\.op\d+ on kernels", message))
    assert (len(errors), len(message) <= 4_096, named > 100) == (10, True, True)
    assert message.startswith("9,990 more findings: torch.op00010 on kernels, torch.op00011")
    assert message.endswith(f", and {9_990 - named:,} more")


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_annotate__hostile_text__is_one_command_on_one_line(name: str) -> None:
    value = samples.HOSTILE[name]
    location = samples.finding().location
    found = [
        samples.numbered(index, operator=value, headline=value, message=value, candidate=value, replay=value,
                         location=type(location)(file=value, line=1))
        for index in range(12)
    ]  # fmt: skip

    commands = annotate(samples.misaligned(findings=tuple(found)), value)

    assert len(commands) == 11
    for command in commands:
        assert COMMAND.fullmatch(command), command
        assert not set(command) & set("\x00\x1b\x07\u202e\u2066\udc80")
        assert len(command.replace("%25", "%").replace("%0A", "\n").rpartition("::")[2]) <= 4_096


def test_annotate__encoded_command__stays_encoded() -> None:
    found = samples.finding(message="%0A::add-mask::x", headline="a%0A::error::b,c", replay="")

    (command,) = annotate(samples.misaligned(findings=(found,)))

    assert command.endswith("title=a%250A%3A%3Aerror%3A%3Ab%2Cc::%250A::add-mask::x")
