"""The page in a real browser: overview, filter, a finding, its map, keys, a phone, hostile names, 2,000 findings."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ci_autotest.commands.output_writer import rendered
from ci_autotest.page.document import render_page
from ci_autotest.report.finding_text import Setting
from tests import page_samples, report_samples
from tests.browser import chromium, opened
from tests.npm import fetched
from tests.report_samples import HOSTILE

pytestmark = pytest.mark.heavy
MATRIX, GRADIENT, VECTOR, CRASH = "layer_norm-3f2a", "op00001-0000", "op00002-0000", "op00003-0000"


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = page_samples.written(page_samples.result(), tmp_path_factory.mktemp("page"))
    path = folder / "index.html"
    path.write_text(rendered(folder, "page", None, {}), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, file):
    found = opened(browser, file)
    yield found
    assert (found.errors, found.asked) == ([], [file.as_uri()])
    found.page.close()


def open_finding(found, name):
    found.page.click(f"#{name} > summary")
    return found.page.locator(f"#{name}")


def drag(panel, selector, value):
    panel.locator(selector).evaluate(
        "(each, value) => { each.value = value; each.dispatchEvent(new Event('input')) }", str(value)
    )


def painted(panel) -> int:
    """Return how many colours the map has."""
    return panel.locator("canvas").evaluate(
        "each => new Set(new Uint32Array(each.getContext('2d').getImageData(0, 0, each.width, each.height).data.buffer)).size"
    )


def test_overview__candidates_and_operators__are_shown(page):
    assert page.text("h1").startswith("✗ ")
    assert page.page.locator("#grid tbody tr").count() == 3
    assert page.page.locator("#grid .sq").count() == 12
    assert page.page.locator("#grid .sq.m").count() == 3
    assert page.text("#tests-shown") == "4"
    assert page.text("#legend").split("\n") == ["crashed", "misaligned", "aligned", "not compared"]


def test_filter__words_and_states__narrow_findings_and_tests(page):
    page.page.fill("#search", "layer_norm")
    page.wait_for("#tests-shown", "1 of")
    page.page.fill("#search", "op00002")
    page.wait_for("#shown", "1 of 4")
    assert page.shown(".panel") == 1
    page.page.keyboard.press("Escape")
    page.page.click("button[data-state=crashed]")
    assert page.text("#shown") == "1 of 4"
    page.page.click("button[data-state=crashed]")
    page.page.click("button[data-standing=new]")
    assert page.page.locator(".panel:not([hidden])").get_attribute("id") == GRADIENT
    page.page.click("button[data-standing=new]")
    page.page.click("button[data-candidate=compiled]")
    assert page.page.locator(".panel:not([hidden])").get_attribute("id") == VECTOR


def test_filter__square_of_the_grid__searches_for_its_operator(page):
    page.page.click("#grid .sq.c")

    assert page.page.input_value("#search") == "torch.op00003"
    assert page.page.locator(".panel:not([hidden])").get_attribute("id") == CRASH


def test_finding__opened__shows_program_graphs_and_values(page):
    panel = open_finding(page, GRADIENT)

    assert panel.locator("pre mark").count() >= 1
    assert panel.locator("svg.graph").count() == 2
    assert panel.locator(".backward .culprit").count() == 1
    assert panel.locator(".values dd").count() >= 2
    assert panel.locator(".says").inner_text() == "As found: only the last 3 of each row of 8"


def test_map__tolerance_moved__recounts_as_numpy_does(page):
    panel = open_finding(page, MATRIX)
    candidate, reference = page_samples.errors(20, 35)
    tolerance = page_samples.TOLERANCE
    ratio = np.abs(candidate - reference) / (tolerance.atol + tolerance.rtol * np.abs(reference))

    for level in (48, 96, 140, 162, 166, 190):
        drag(panel, ".level", level)
        outside = int((ratio > 2 ** ((level - 96) / 4)).sum())
        assert panel.locator("output").nth(1).inner_text().startswith(f"{outside} of 700 elements"), level
    assert painted(panel) >= 2


def test_map__matrix__names_the_wrong_rows_and_columns(page):
    panel = open_finding(page, MATRIX)

    assert panel.locator("output").nth(2).inner_text() == "rows 0 to 19; columns 32 to 34"


def test_map__three_dimensions__axes_and_planes_are_chosen(page):
    panel = open_finding(page, GRADIENT)
    panel.locator("select").nth(1).select_option("0")

    assert panel.locator("select").nth(0).input_value() == "1"
    assert panel.locator("output").nth(2).inner_text() == "rows 0 to 5; columns 0 to 3 in this plane"
    drag(panel, "[data-axis='2']", 0)
    assert panel.locator("output").nth(2).inner_text() == "nothing outside in this plane"


def test_map__arrow_keys__tell_element_by_element(page):
    panel = open_finding(page, MATRIX)
    canvas = panel.locator("canvas")
    canvas.focus()
    canvas.press("ArrowRight")

    assert panel.locator("output").first.inner_text() == "[0, 0]: equal"
    canvas.press("ArrowDown")
    assert panel.locator("output").first.inner_text() == "[1, 0]: equal"


def test_map__vector__is_wrapped(page):
    panel = open_finding(page, VECTOR)
    drag(panel, "input[type=number]", 10)

    assert painted(panel) >= 2
    assert "9 of 100 elements are outside the tolerance" in panel.locator("output").nth(1).inner_text()


def test_keys__search_next_and_open__need_no_mouse(page):
    page.page.keyboard.press("/")
    assert page.page.evaluate("document.activeElement.id") == "search"
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("j")
    page.page.keyboard.press("j")
    page.page.keyboard.press("Enter")

    assert page.page.locator(".panel[open]").count() == 1
    assert page.page.evaluate("document.querySelectorAll('.panel')[1].open")
    page.page.keyboard.press("k")
    assert page.page.evaluate("document.querySelector('.panel').contains(document.activeElement)")


def test_address__with_a_finding__opens_it(browser, file):
    found = opened(browser, file)
    found.page.goto(f"{file.as_uri()}#{GRADIENT}")

    assert found.page.locator(f"#{GRADIENT}[open]").count() == 1
    found.page.close()


def test_colours__system_and_button__change_them(browser, file):
    backs = []
    for scheme in ("light", "dark"):
        found = opened(browser, file, scheme=scheme)
        backs.append(found.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        found.page.click("#theme")
        found.page.click("#theme")
        backs.append(found.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        found.page.close()

    assert backs == ["rgb(255, 255, 255)", "rgb(13, 17, 23)", "rgb(13, 17, 23)", "rgb(13, 17, 23)"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone__every_finding_open__nothing_is_wider_than_the_screen(browser, file, scheme):
    found = opened(browser, file, width=360, height=740, scheme=scheme)
    for name in (MATRIX, GRADIENT, VECTOR, CRASH):
        open_finding(found, name)

    assert found.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert (
        found.page.evaluate("Math.max(...[...document.querySelectorAll('canvas')].map(each => each.clientWidth))")
        <= 360
    )
    found.page.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_report__every_text__stays_text(browser, tmp_path, name):
    bad = HOSTILE[name][:5000].replace("\udc80", "?")
    info = report_samples.KERNELS
    finding = report_samples.finding(
        operator=bad, target=bad, candidate=bad, test=bad, headline=bad, message=bad, detail=bad, where=bad, oracle=bad,
        program=bad, replay=bad, pattern=page_samples.pattern(5, 8),
    )  # fmt: skip
    result = report_samples.misaligned(
        findings=(finding,), notes=(bad,), candidates=(msgspec.structs.replace(info, name=bad, backend=bad),),
        results=(report_samples.failed(test=bad, candidate=bad, reason=bad),), operators=page_samples.coverage(),
    )  # fmt: skip
    path = tmp_path / "index.html"
    path.write_text(render_page(result, Setting()), encoding="utf-8")

    found = opened(browser, path)
    found.page.fill("#search", bad[:50])

    assert (found.errors, found.asked) == ([], [path.as_uri()])
    assert found.page.locator("img, iframe, object, embed, link, form").count() == 0
    assert found.page.locator("script").count() == 2
    assert found.page.locator("a").count() == 4  # our own
    found.page.close()


def test_two_thousand_findings__open_filter_and_scroll(browser, tmp_path):
    folder = page_samples.written(page_samples.many(2_000), tmp_path)
    path = folder / "index.html"
    path.write_text(rendered(folder, "page", None, {}), encoding="utf-8")

    found = opened(browser, path)

    assert found.shown(".panel") == 2_000
    found.page.evaluate("window.scrollTo(0, document.body.scrollHeight / 2)")
    found.page.fill("#search", "op01999")
    found.wait_for("#shown", "1 of 2,000")
    panel = open_finding(found, "op01999-0000")
    assert panel.locator("canvas").count() == 1
    assert found.errors == []
    found.page.close()


@pytest.mark.parametrize(("count", "width", "scheme"), [(0, 1280, "light"), (4, 390, "dark"), (30, 1920, "light")])
def test_axe__every_panel_open__finds_nothing_serious(browser, file, tmp_path, count, width, scheme):
    path = file
    if count != 4:
        result = page_samples.many(count) if count else report_samples.run()
        folder = page_samples.written(result, tmp_path)
        path = folder / "index.html"
        path.write_text(rendered(folder, "page", None, {}), encoding="utf-8")

    found = opened(browser, path, width=width, scheme=scheme)
    found.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    found.page.add_script_tag(content=fetched("axe-core@4.10.3", "axe.min.js").read_text("utf-8"))
    violations = found.page.evaluate("axe.run().then(({violations}) => violations)")
    found.page.close()

    serious = [each for each in violations if each["impact"] in {"serious", "critical"}]
    assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == []


def test_map__blocks_beyond_the_edge__rows_end_with_the_last(browser, tmp_path):
    finding = report_samples.finding(pattern=page_samples.pattern(234, 300))
    folder = page_samples.written(report_samples.misaligned(findings=(finding,)), tmp_path)
    path = folder / "index.html"
    path.write_text(rendered(folder, "page", None, {}), encoding="utf-8")

    found = opened(browser, path)
    panel = found.page.locator(f"#{MATRIX}")  # open, because it is the only one

    assert panel.locator("output").nth(2).inner_text().startswith("rows 0 to 233; columns ")
    # The two ends of a histogram's axis stand side by side.
    for axis in panel.locator(".axis").all():
        first, last = (each.bounding_box() for each in axis.locator("span").all())
        assert first["x"] + first["width"] <= last["x"]
    found.page.close()
