import re

import msgspec

from ci_autotest.page.history import render_history
from ci_autotest.values.past_run import past_run
from tests import report_samples as samples
from tests.page_samples import Reader


def _runs(name="folder"):
    found = samples.finding(greatest_absolute_difference=0.5)
    return [
        past_run(samples.run(), time_s=1.7e9), past_run(samples.misaligned(findings=(found,)), time_s=1.8e9),
        msgspec.structs.replace(past_run(samples.run()), name=name),
    ]  # fmt: skip


def test_render_history__three_runs__has_a_plot_for_each_trend():
    text = render_history(_runs())

    assert len(re.findall(r'<figure class="trend">', text)) == 5
    assert "<h1>3 runs</h1>" in text
    assert "2023-11-14 22:13" in text
    assert Reader(text).addresses == set()


def test_render_history__hostile_name__stays_text():
    harmless, hostile = Reader(render_history(_runs())), Reader(render_history(_runs(samples.HOSTILE["html"])))

    assert (hostile.tags, hostile.attributes) == (harmless.tags, harmless.attributes)


def test_render_history__times_beyond_any_date__are_left_out():
    text = render_history([past_run(samples.run(), time_s=1e12)])

    assert "<h1>1 run</h1>" in text
