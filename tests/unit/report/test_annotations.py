"""Workflow commands: few, escaped, and only for what counts."""

from __future__ import annotations

import pytest

from ci_autotest.report.annotations import annotate
from tests import report_samples as samples


def test_annotate__one_finding__is_one_error_at_its_line():
    lines = annotate(samples.misaligned(findings=(samples.finding(message="off by 3 %\nmuch"),)), prefix="lib")

    assert lines == (
        (
            "::error file=lib/autotests/autotest_norms.py,line=12,"
            "title=torch.nn.functional.layer_norm on kernels%3A the value is off by up to 0.0041"
            "::off by 3 %25%0Amuch%0Areplay: ci-autotest replay autotest-report/findings/layer_norm-3f2a"
        ),
    )


def test_annotate__no_location__has_no_file():
    lines = annotate(
        samples.misaligned(findings=(samples.finding(location=None, headline="h", message="m", replay=""),))
    )

    assert lines == ("::error title=h::m",)


def test_annotate__thirteen_findings__names_three_in_a_notice():
    lines = annotate(samples.run(findings=tuple(samples.numbered(index) for index in range(13))))

    assert [line.split(" ")[0] for line in lines] == ["::error"] * 10 + ["::notice"]
    assert lines[-1] == (
        "::notice title=ci-autotest::3 more findings: "
        "torch.op00010 on kernels, torch.op00011 on kernels, torch.op00012 on kernels"
    )


@pytest.mark.parametrize("change", [{"known": "x"}, {"kind": "leniency"}], ids=str)
def test_annotate__finding_that_does_not_count__has_no_line(change):
    assert annotate(samples.run(findings=(samples.finding(**change),))) == ()


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_annotate__hostile_text__stays_one_short_line(name):
    planted = samples.HOSTILE[name]
    found = samples.finding(headline=planted, message=planted, operator=planted, candidate=planted)

    lines = annotate(samples.run(findings=(found,) * 11))

    assert len(lines) == 11
    for line in lines:
        assert line.startswith(("::error file=autotests/autotest_norms.py,line=12,title=", "::notice title="))
        assert line.isprintable()
        assert len(line) < 5_000


def test_annotate__title_with_a_comma_and_a_colon__cannot_add_a_property():
    lines = annotate(samples.run(findings=(samples.finding(headline="x,file=/etc/passwd::y", location=None),)))

    assert lines[0].startswith("::error title=x%2Cfile=/etc/passwd%3A%3Ay::")
