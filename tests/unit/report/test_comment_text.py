"""The pages: a golden comment, hostile names, and sizes."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt

from ci_autotest.report.comment_text import COMMENT_LIMIT, render_comment, render_finding, render_summary
from ci_autotest.report.finding_text import Setting
from ci_autotest.report.links import Links
from ci_autotest.report.markdown_text import size
from tests import report_samples as samples

GOLDEN = Path(__file__).parents[2] / "golden" / "comment.md"
LINKS = Links(
    server="https://github.com",
    repository="org/kernels",
    sha="0123456789abcdef",
    run="https://github.com/org/kernels/actions/runs/1",
    artifact="https://github.com/org/kernels/actions/runs/1/artifacts/2",
    run_id=1,
    artifact_name="ci-autotest-report",
)
SETTING = Setting(links=LINKS)
MARKDOWN = MarkdownIt("commonmark").enable("table")
#: The only HTML that a page has is its own.
OWN_HTML = re.compile(
    r"<a name=\"[\w-]+\">|</a>|<details><summary>(?:(?:<a name=\"[\w-]+\"></a>)?<b>[^<>]*</b>|[^<>]*)</summary>|</?details>|</?sub>"
)


def tokens(page):
    return [child for token in MARKDOWN.parse(page) for child in (token, *(token.children or ()))]


def foreign(page):
    """Return the HTML, the links and the pictures of a page that are not its own."""
    html = [token.content for token in tokens(page) if token.type in {"html_inline", "html_block"}]
    links = [str(token.attrs.get("href")) for token in tokens(page) if token.type == "link_open"]
    pictures = [token.content for token in tokens(page) if token.type == "image"]
    return [
        *(item for item in html if OWN_HTML.sub("", item).strip()),
        *(item for item in links if not re.match(r"https://github\.com/org/kernels/|#user-content-[\w-]+$", item)),
        *pictures,
    ]


def planted(value):
    """Return a run in which a text stands wherever a text can stand."""
    found = samples.finding(
        candidate=value, operator=value, target=value, test=f"a.py::{value}", profile=value, message=value,
        where=value, headline=value, candidate_seen=value, reference_seen=value, detail=value, oracle=value,
        oracle_value=value, first_pair=(value, value), difference=samples.difference(first_pair_decimal=(value, value)),
        program=value, tests=(value, "b"), replay=value,
    )  # fmt: skip
    result = samples.outcome(test=value, candidate=value, reason=value, profiles={value: 1})
    return samples.run(
        findings=(found, msgspec.structs.replace(found, id="other-1", known=value, kind="dtype")),
        results=(result, msgspec.structs.replace(samples.rejected(), test=value, reason=value)),
        broken=(samples.broken(test=value, message=value, traceback=value),),
        candidates=(
            msgspec.structs.replace(samples.KERNELS, name=value, version=value, available=False, reason=value),
        ),
        notes=(value,),
        new=(),
        fixed=(value,),
        environment=msgspec.structs.replace(samples.run().environment, torch=value, platform=value, commit=value),
    )


def test_render_comment__everything_happened__is_the_golden_comment():
    comment = render_comment(samples.everything(), setting=SETTING)

    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(comment)
    assert comment == GOLDEN.read_text()


def test_render_comment__golden__has_only_its_own_html_and_links():
    assert foreign(GOLDEN.read_text()) == []


def test_render_comment__misaligned__says_first_what_is_misaligned():
    first = render_comment(samples.misaligned()).splitlines()[0]

    assert first == "### ✗ 1 operator misaligned: torch.nn.functional.layer_norm on kernels"


def test_render_comment__unshrunk_and_unverified__says_so():
    found = samples.finding(shrunk=False, repro_verified=False, accumulated=True)

    comment = render_comment(samples.misaligned(findings=(found,)))

    assert (
        "| status | accumulated error: each step is aligned when it gets the reference's inputs; "
        "not shrunk; repro not verified |" in comment
    )


def test_render_comment__no_repro__gives_only_the_replay():
    comment = render_comment(samples.misaligned(findings=(samples.finding(repro=None),)))

    assert "repro.py" not in comment
    assert "ci-autotest replay autotest-report/findings/layer_norm-3f2a" in comment


def test_render_comment__command_that_a_shell_would_read__is_not_offered():
    comment = render_comment(samples.misaligned(findings=(samples.finding(replay="ci-autotest replay x; curl y"),)))

    assert "curl" not in comment


@pytest.mark.parametrize("render", [render_comment, render_summary], ids=["comment", "summary"])
@pytest.mark.parametrize("name", samples.HOSTILE)
def test_render__hostile_text_everywhere__has_only_its_own_html_and_links(name, render):
    page = render(planted(samples.HOSTILE[name]), setting=SETTING)

    assert foreign(page) == []
    assert not set(page) & set("\x00\x1b\x07\u202e\u2066\udc80")
    assert size(page) <= 1_000_000


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_render__hostile_text_everywhere__page_keeps_its_parts(name):
    page = render_summary(planted(samples.HOSTILE[name]), setting=SETTING)
    kinds = [token.type for token in tokens(page)]

    assert kinds.count("heading_open") == 1
    # Candidates, findings, facts, accepted differences, all tests.
    assert kinds.count("table_open") == 5
    assert [token.content for token in tokens(page)].count("Notes") == 1


def test_foreign__page_that_does_not_neutralise__is_caught():
    # The planted fault of the checks above.
    assert foreign("</details><img src=x onerror=1>\n") == ["</details><img src=x onerror=1>\n"]
    assert foreign("[a](http://evil.example)") == ["http://evil.example"]


@pytest.mark.parametrize("limit", [4_096, 6_000, 10_000, 30_000, COMMENT_LIMIT])
def test_render_comment__any_limit__is_kept_and_no_fence_is_cut(limit):
    found = tuple(samples.numbered(index, program=f"# {'é' * index}\n" * 10) for index in range(80))
    result = msgspec.structs.replace(samples.everything(), findings=found)

    comment = render_comment(result, limit=limit)

    assert size(comment) <= limit
    assert comment.startswith("### ✗ 80 operators misaligned: ")
    assert len(re.findall(r"^```", comment, re.MULTILINE)) % 2 == 0
    told = sum(
        int(count.replace(",", "")) for count in re.findall(r"^([\d,]+) more findings are in", comment, re.MULTILINE)
    )
    shown = {found.operator for found in found if f"`{found.operator}`" in comment}
    assert len(shown) + told == 80


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_render_comment__hostile_text_and_little_room__keeps_the_limit_and_a_heading(name):
    comment = render_comment(planted(samples.HOSTILE[name]), limit=4_096)

    assert size(comment) <= 4_096
    assert comment.startswith("### ✗ ")


def test_render_comment__program_without_room__is_left_to_the_artifact():
    large = samples.finding(program="x = 1\n" * 20_000)

    comment = render_comment(samples.misaligned(findings=(large, samples.numbered(1))))

    assert (
        "The program (20,001 lines) does not fit here: it is in the artifact, in `findings/layer_norm-3f2a`." in comment
    )
    assert comment.count("```python") == 1


@pytest.mark.heavy
def test_render_comment__ten_thousand_findings__is_quick_and_counts_the_rest():
    found = tuple(samples.numbered(index) for index in range(10_000))
    result = samples.misaligned(findings=found)

    start = time.process_time()
    comment, summary = render_comment(result), render_summary(result)
    elapsed_s = time.process_time() - start

    assert elapsed_s < 20
    assert (size(comment) <= COMMENT_LIMIT, size(summary) <= 1_000_000) == (True, True)
    assert "\n9,940 more findings are in the summary and the artifact.\n" in comment
    assert comment.count("```python") > 20


def test_render_summary__comment_s_run__has_a_table_of_all_tests():
    summary = render_summary(samples.everything())

    assert "| `autotests/autotest_x.py::softmax` | `compiled` | not run | 0 / 0 | 400 |  | 1.5 s |" in summary
    assert "All tests" not in render_comment(samples.everything())


DETAILS = re.compile(r"<details>(?:(?!</?details>).)*</details>", re.DOTALL)


def visible(page):
    """Return the lines of a page that are seen before anything is unfolded."""
    while DETAILS.search(page):
        page = DETAILS.sub("<closed>", page)
    return [line for line in page.splitlines() if line.strip()]


def ten_findings(**changes):
    numbers = ", ".join(str(number / 7) for number in range(64))
    program = f"import torch\n\nx = torch.tensor([{numbers}])\ny = torch.nn.functional.relu(x)  # misaligned"
    return samples.misaligned(findings=tuple(samples.numbered(i, program=program) for i in range(10)), **changes)


def test_render_comment__ten_findings__a_table_one_open_and_the_others_folded():
    lines = visible(render_comment(ten_findings(new=("op00001-0000",)), setting=SETTING))

    rows = [line for line in lines if line.startswith("| [`torch.op")]
    end = "| `kernels` | value | 0.0041 | 3 of 20 | candidate"
    assert rows[0] == f"| [`torch.op00001`](#user-content-op00001-0000) {end} | **new** |"
    assert rows[1:] == [
        f"| [`torch.op{i:05}`](#user-content-op{i:05}-0000) {end} | still |" for i in (0, *range(2, 10))
    ]
    assert lines.count("<closed>") == 10  # of the first finding the row that accepts it, and the nine others
    assert len(lines) < 70  # 70 lines of a table or of code are two screens


def test_render_comment__long_table__is_folded_beyond_twenty_rows_and_each_row_has_its_section():
    found = [samples.finding(id=f"op{i:05}-0000", operator=f"torch.op{i:05}") for i in range(24)]
    page = render_comment(samples.misaligned(findings=tuple(found)), setting=SETTING)

    table, _, folded = page.partition("<details><summary>the other 4 findings</summary>")
    assert (table.count("| [`torch.op"), folded.partition("</details>")[0].count("| [`torch.op")) == (20, 4)
    assert {f"#user-content-{name}" for name in re.findall(r'<a name="([\w-]+)"></a>', page)} == set(
        re.findall(r"\]\((#[\w-]+)\)", page)
    )


def test_render_comment__uploaded__says_when():
    page = render_comment(samples.misaligned(), setting=Setting(links=replace(LINKS, uploaded="2026-11-20T10:00:00Z")))
    assert "reported 2026-11-20 10:00 UTC" in page
    hostile = Setting(links=replace(LINKS, uploaded="<b>now</b>"))
    assert "reported" not in render_comment(samples.misaligned(), setting=hostile)


def test_render_comment__code__is_no_wider_than_the_page():
    inside, widest = False, 0
    for line in render_comment(ten_findings(), setting=SETTING).splitlines():
        inside ^= line.startswith("```")
        widest = max(widest, len(line) if inside else 0)

    assert 80 < widest <= 100


def test_render_comment__columns__are_those_that_somebody_has():
    heads = render_comment(samples.misaligned()).splitlines()[2]

    assert heads == "| tests on | aligned | misaligned | cases compared |"


def test_render_comment__without_a_baseline__does_not_speak_of_it():
    assert "baseline" not in render_comment(samples.misaligned())


def test_render_finding__commands__start_in_the_folder_of_the_run():
    page = render_finding(samples.finding(), links=LINKS)

    assert page.startswith("# torch.nn.functional.layer_norm on kernels: the value is off by up to 0.0041\n\n")
    folder = f"autotest-report/findings/{samples.finding().id}"
    lines = ["python {}/repro.py  # needs only the candidate", "ci-autotest replay {}  # the same, with ci-autotest"]
    assert "\n".join(line.format(folder) for line in lines) in page
    assert samples.MESSAGE in page
    assert foreign(page) == []


def test_render_finding__long_lines__stay_as_they_are_in_the_report():
    program = f"x = torch.tensor([{', '.join(map(str, range(100)))}])"

    assert program in render_finding(samples.finding(program=program))


def test_render_finding__program_beyond_the_limit__is_left_to_the_file():
    page = render_finding(samples.finding(program="x = 1\n" * 2_000), limit=10_000)

    assert size(page) <= 10_000
    assert "```python" not in page


def test_render_finding__differs_from_itself__tells_the_first_run_first():
    finding = samples.finding(kind="nondeterminism")
    second, first = finding.difference.first_pair_decimal
    page = render_finding(finding).replace("\\", "")
    assert f"differs: {first} in the first run, {second} in the second." in page


def test_render_summary__test_that_is_weak_on_two_candidates__is_told_once_with_what_the_reference_said():
    weak = [
        samples.outcome(candidate=name, weak=True, refusal="it says no", findings=())
        for name in ("compiled", "kernels")
    ]
    page = render_summary(samples.run(results=tuple(weak)))
    assert page.count("is weak") == 1
    assert "for example: it says no" in page


def test_render_finding__crash__says_what_happened_and_not_what_differs():
    crash = samples.finding(
        kind="crash", outcome="crashed", where="in torch.cumsum", difference=None, candidate_seen="ended by signal 11",
        reference_seen="", headline="torch.cumsum on kernels: the worker ended by signal 11 (SIGSEGV)",
    )  # fmt: skip

    described = render_finding(crash).split("\n\n")[2]

    assert described == (
        "torch.cumsum on kernels: the worker ended by signal 11 (SIGSEGV). "
        "It was confirmed in a fresh process, where each side ran twice."
    )


def test_render_finding__two_devices__names_the_values_and_not_the_devices():
    page = render_finding(samples.finding())
    assert "expected -0.9999900 at \\[0, 1\\], got -0.9959006 (float32\\[1, 2\\] on cuda:0)" in page


def test_render_comment__fixed_without_a_baseline__says_nothing_of_one():
    page = render_comment(samples.misaligned(fixed=("kernels torch.relu value",)))
    assert "Findings of earlier runs: 1 fixed: `kernels torch.relu value`." in page
    assert "baseline" not in page
