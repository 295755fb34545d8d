import pytest

from ci_autotest.report.trend import Trend, trends
from ci_autotest.values.past_run import past_run
from tests import report_samples as samples


def _run(error, **changes):
    finding = samples.finding(greatest_absolute_difference=error)
    return past_run(samples.misaligned(findings=(finding,), **changes))


def test_trends__three_runs__have_outcomes_speed_and_errors():
    runs = [past_run(samples.run()), _run(0.5), _run(0.25, duration_s=20.0)]

    found = {(trend.group, trend.name): trend.values for trend in trends(runs)}

    assert found == {
        ("outcomes", "aligned"): (2, 1, 1),
        ("outcomes", "misaligned"): (0, 1, 1),
        ("speed", "seconds"): (12.3, 12.3, 20.0),
        ("speed", "cases a second"): (40 / 12.3, 40 / 12.3, 2.0),
        ("greatest errors", f"kernels {samples.OPERATOR} value"): (None, 0.5, 0.25),
    }


@pytest.mark.parametrize(
    ("values", "form", "bars", "last"),
    [
        ((0, 1, 2, 4), ",d", "▁▃▅█", "4"),
        ((0, 0), ",d", "▁▁", "0"),
        ((1e-6, 1e-3, 1.0), ".3g", "▂▅█", "1"),
        ((None, 1.0, None), ".3g", " █ ", "none"),
        ((), ".3g", "", "none"),
    ],
)
def test_bars__values__are_a_line(values, form, bars, last):
    trend = Trend("group", "name", values, form)

    assert (trend.bars, trend.last) == (bars, last)
