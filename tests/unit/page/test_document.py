"""The pages without a browser: each is one file, shows hostile reports as text, and keeps its size."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from ci_autotest.commands.output_writer import rendered, without_report
from ci_autotest.page.document import render_history, render_page
from ci_autotest.report.finding_text import Setting
from ci_autotest.report.merge import merge
from ci_autotest.values.finding import Location
from ci_autotest.values.past_run import past_run
from ci_autotest.values.speed import Ratio, SpeedResult
from tests import page_samples, report_samples
from tests import report_samples as samples
from tests.page_samples import Reader
from tests.report_samples import HOSTILE

LIMIT_BYTES = 300_000


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture
def folder(tmp_path):
    return page_samples.written(page_samples.result(), tmp_path)


def test_render_page__twenty_findings_with_the_largest_maps__keeps_the_limit(tmp_path):
    findings = tuple(report_samples.numbered(index, pattern=page_samples.pattern(64, 64)) for index in range(20))
    page_samples.written(report_samples.misaligned(findings=findings), tmp_path)

    text = rendered(tmp_path, "page", None, {})

    assert len(text.encode()) <= LIMIT_BYTES
    assert len(data_of(text)["maps"]) == 20


def test_render_page__saved_program__shows_culprit_graphs_values_and_pattern(folder):
    text = rendered(folder, "page", None, {})

    assert text.count('<g class="culprit"') == 5  # each forward, and one backward
    assert "<h3>Backward: how the gradient flows</h3>" in text
    assert "only the last 3 of each row of 35" in text
    assert "torch.tensor([[1.0, 1.0]])" in text or "torch.ones((1, 2))" in text
    assert re.search(r"<mark>.*layer_norm\(", text)


def test_render_page__kernel_of_the_checkout__is_named_by_its_place(tmp_path):
    finding = report_samples.finding()
    kernels = {finding.operator: Location(file="<b>kernels.py", line=5)}
    named = msgspec.structs.replace(report_samples.KERNELS, kernels=kernels)
    page_samples.written(report_samples.misaligned(findings=(finding,), candidates=(named,)), tmp_path)

    assert "&lt;b&gt;kernels.py:5" in rendered(tmp_path, "page", None, {})


def test_render_page__no_network__names_no_address(folder):
    text = rendered(folder, "page", None, {})

    assert Reader(text).addresses == {"#findings", "#operators", "#tests"}
    assert not re.search(r"(?:https?:)?//[a-z]|@import|url\((?!#)", text.replace("// ", ""))


@pytest.mark.parametrize("name", HOSTILE)
def test_render_page__hostile_text_everywhere__adds_no_element(folder, name):
    harmless = Reader(rendered(folder, "page", None, {}))
    bad = HOSTILE[name][:5000].replace("\udc80", "?")
    finding = report_samples.finding(
        operator=bad, target=bad, candidate=bad, test=bad, headline=bad, message=bad, detail=bad, where=bad, oracle=bad,
        program=bad, known=bad, replay=bad, layer=bad, versions=bad, output=bad, candidate_seen=bad, reference_seen=bad,
        pattern=page_samples.pattern(5, 8),
    )  # fmt: skip
    info = report_samples.KERNELS
    result = page_samples.result(
        findings=(finding, *page_samples.result().findings), notes=(bad,), fixed=(bad,), broken=(report_samples.broken(message=bad, test=bad),),
        candidates=(msgspec.structs.replace(info, name=bad, backend=bad, version=bad, device=bad, available=False, reason=bad), info),
        results=(report_samples.failed(test=bad, candidate=bad, reason=bad), *page_samples.result().results),
    )  # fmt: skip

    text = render_page(result, Setting())

    found = Reader(text)
    assert found.tags - {"rect"} <= harmless.tags | {"ul", "li"}
    assert found.attributes <= harmless.attributes | {"data-candidate"}
    assert found.addresses == {"#findings", "#operators", "#tests"}
    data_of(text)


@pytest.mark.parametrize(
    "change",
    [
        {"cells": (20, 36)}, {"cells": (-1, 35)}, {"block": (0, 1)}, {"levels": b"abc"}, {"cells": ()}, {"block": (1, 1, 1)},
    ],
)  # fmt: skip
def test_render_page__map_that_contradicts_itself__is_left_out(change):
    pattern = page_samples.pattern(20, 35)
    damaged = msgspec.structs.replace(pattern, map=msgspec.structs.replace(pattern.map, **change))

    text = render_page(report_samples.misaligned(findings=(report_samples.finding(pattern=damaged),)), Setting())

    assert data_of(text)["maps"] == {}
    assert "only the last 3 of each row of 35" in text


def test_render_page__grid__has_a_letter_for_each_operator_and_candidate():
    data = data_of(render_page(page_samples.result(), Setting()))

    assert data["candidates"] == ["kernels", "compiled"]
    assert [(row["family"], row["states"]) for row in data["grid"]] == [
        ("normalization", ["m", "-"]), ("pointwise", ["aa", "a-"]), ("other", ["m-c", "-m-"]),
    ]  # fmt: skip


def test_render_page__new_still_and_fixed__are_told():
    text = render_page(page_samples.result(), Setting())

    assert "new 1</button>" in text
    assert "still 3</button>" in text
    assert "kernels torch.sum value" in text


def test_render_page__nothing_wrong__says_so():
    assert "<p>No finding.</p>" in render_page(report_samples.run(), Setting())


def test_render_page__more_findings_than_panels__are_counted(monkeypatch):
    monkeypatch.setattr("ci_autotest.page.document.PANELS_AT_MOST", 3)

    text = render_page(page_samples.result(), Setting())

    assert "1 more findings are in report.json." in text


def test_render_page__merged_shards__has_the_findings_of_all():
    first = report_samples.misaligned(
        shard=(1, 2), findings=(report_samples.finding(pattern=page_samples.pattern(5, 8)),)
    )
    other = report_samples.misaligned(shard=(2, 2), findings=(report_samples.numbered(7, candidate="compiled"),))

    text = render_page(merge([first, other]), Setting())

    assert re.findall(r'<details class="panel" id="([^"]*)"', text) == ["op00007-0000", "layer_norm-3f2a"]
    assert 'data-candidate="compiled"' in text


def test_render_page__timed_calls__are_a_table_with_intervals():
    ratio = Ratio(low=1.8, median=2.0, high=2.2, pairs=40)
    timed = SpeedResult(
        test="tests/t.py::matmul", candidate="<b>k", case=0, phase="forward", operators=("torch.matmul",),
        inputs=("float32[512, 512]",), verdict="slower", ratio=ratio, candidate_s=2e-3, reference_s=1e-3,
    )  # fmt: skip
    many = [msgspec.structs.replace(timed, case=case, ratio=None, verdict="not_timed") for case in range(600)]
    text = render_page(report_samples.run(speed=(*many, timed)), Setting())

    row = text[text.index('<section aria-labelledby="h-speed"') :]
    assert row.index("2.00 (1.80 to 2.20)") < row.index("not timed</td>")
    assert '<span style="left:71.2%;width:7.2%">' in row
    assert "101 more are in report.json" in row
    assert "&lt;b&gt;k" in row
    assert "<b>k" not in row


def test_render_page__nothing_timed__has_no_table_of_speed(folder):
    assert "h-speed" not in rendered(folder, "page", None, {})


def test_render_page__verdict_with_special_characters__is_shown_as_it_stands():
    note = r"see <https://x> & `a|b` in C:\tmp\new"
    page = render_page(without_report(note), Setting())
    assert r"<title>✗ see &lt;https://x&gt; &amp; `a|b` in C:\tmp\new</title>" in page


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
