"""Surfaces made anew: of any room, of a run's own folder, and with what lies in it."""

from __future__ import annotations

import re

import msgspec
import pytest

from ci_autotest.commands.output_writer import links_from, rendered, saved_programs, write_surfaces
from ci_autotest.errors import OutputError, UsageError
from ci_autotest.program.repro.permissions import Permissions
from ci_autotest.report import report_json
from ci_autotest.report.finding_text import Setting
from ci_autotest.report.markdown_text import size
from tests import program_samples as programs
from tests import report_samples as samples

ENVIRON = {
    "GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "org/kernels", "GITHUB_SHA": "ab" * 20,
    "GITHUB_RUN_ID": "77", "ARTIFACT_URL": "https://git.example/a", "ARTIFACT_NAME": "report gpu",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    findings = tuple(samples.numbered(index, target=programs.OPERATOR) for index in range(30))
    report_json.write(samples.misaligned(findings=findings), tmp_path / "report.json")
    for name, data in zip(
        ("program.json", "tensors.safetensors"), programs.files(columns=100, negations=2), strict=True
    ):
        place = tmp_path / "findings" / "op00000-0000" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("limit", [0, 1, 50, 200, 1_000, 4_095, 4_096, 10_000, 300_000, None])
def test_rendered__summary_of_any_room__keeps_it_and_cuts_nothing(folder, limit) -> None:
    page = rendered(folder, "summary", limit, ENVIRON)

    assert size(page) <= (1_000_000 if limit is None else limit)
    assert len(re.findall(r"^```", page, re.MULTILINE)) % 2 == 0
    assert page.count("<details>") == page.count("</details>")
    assert page == "" or page.startswith("### ✗ 30 ")
    if limit == 4_096:
        assert "more findings are in the artifact" in page


def test_rendered__annotations__are_lines(folder) -> None:
    lines = rendered(folder, "annotations", None, ENVIRON).splitlines()

    assert [line.partition(" ")[0] for line in lines] == ["::error"] * 10 + ["::notice"]


@pytest.mark.parametrize(("text", "error"), [(None, UsageError), ("{}", OutputError), ("[1", OutputError)])
def test_rendered__no_report__is_refused(tmp_path, text, error) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text)

    with pytest.raises(error):
        rendered(tmp_path, "summary", None, {})


def test_saved_programs__folder_of_a_finding__gives_graph_and_tensors_beside_the_run_s_own_text(folder) -> None:
    result = report_json.read(folder / "report.json")

    write_surfaces(
        result,
        folder,
        Setting(links=links_from(ENVIRON, result), source=saved_programs(folder, Permissions(), is_own=True)),
    )

    page = (folder / "comment.md").read_text()
    assert page.count("```mermaid") == 1
    assert re.search(r"\| `input_0`, float32\\\[1, 100\\\] \| 400 \| `[0-9a-f]{64}` \|", page)
    assert samples.PROGRAM in page
    assert (
        "gh run download 77 --repo git.example/org/kernels \\\n    --name 'report gpu' --dir autotest-report-77 &&\n"
        "  ci-autotest replay autotest-report-77/findings/op00000-0000\n"
    ) in page


def test_write_surfaces__any_run__writes_every_file_of_the_report(tmp_path) -> None:
    write_surfaces(samples.misaligned(), tmp_path, Setting())

    assert {path.name for path in tmp_path.iterdir()} == {
        "report.json", "junit.xml", "results.sarif", "summary.md", "comment.md", "index.html",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["program.json", "tensors.safetensors"])
def test_saved_programs__damaged_file__says_so_and_keeps_the_text(folder, name) -> None:
    (folder / "findings" / "op00000-0000" / name).write_bytes(b"{")

    found = saved_programs(folder, Permissions(), is_own=True)(samples.numbered(0))

    assert found is not None
    assert (found.program, found.graph, found.refusal.startswith("The program is not shown: ")) == (
        samples.PROGRAM,
        "",
        True,
    )


def test_rendered__text_that_a_test_may_have_written__is_made_anew_from_the_program(folder) -> None:
    page = rendered(folder, "summary", None, ENVIRON)

    assert "x = stored['input_0'].reshape((1, 100)).requires_grad_()" in page
    assert samples.PROGRAM not in page


@pytest.mark.parametrize("missing", ["GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA"])
def test_links_from__outside_a_workflow__are_none(missing) -> None:
    assert links_from({key: value for key, value in ENVIRON.items() if key != missing}, samples.run()) is None


@pytest.mark.parametrize(
    ("variables", "pull", "digest"),
    [
        ({"GITHUB_REF": "refs/pull/12/merge", "ARTIFACT_DIGEST": "sha256:" + "ab" * 32}, 12, "ab" * 32),
        ({"GITHUB_REF": "refs/heads/main", "ARTIFACT_DIGEST": "cd" * 32}, 0, "cd" * 32),
        ({"GITHUB_REF": "refs/pull/1;x/merge", "ARTIFACT_DIGEST": "`</details>"}, 0, ""),
    ],
)
def test_links_from__pull_request_and_digest__are_those_that_github_writes(variables, pull, digest) -> None:
    links = links_from({**ENVIRON, **variables}, samples.run())

    assert links is not None
    assert (links.pull, links.digest) == (pull, digest)
    checkout = "  gh pr checkout 12 --repo git.example/org/kernels &&\n" if pull else ""
    start = f'cd "$(git rev-parse --show-toplevel)" &&\n{checkout}  rm -rf autotest-report-77 &&\n  gh run download 77'
    assert links.replay("a-1").startswith(start)


@pytest.mark.parametrize(
    ("variables", "commit"),
    [
        pytest.param({"GITHUB_REF": "refs/pull/12/merge", "AUTOTEST_HEAD_SHA": "5f" * 20}, "5f" * 20, id="head"),
        pytest.param({"GITHUB_REF": "refs/pull/12/merge"}, "ab" * 20, id="head is not given"),
        pytest.param(
            {"GITHUB_REF": "refs/pull/12/merge", "AUTOTEST_HEAD_SHA": "main) @org"}, "ab" * 20, id="no commit"
        ),
        pytest.param({"GITHUB_REF": "refs/heads/main", "AUTOTEST_HEAD_SHA": "5f" * 20}, "ab" * 20, id="push"),
    ],
)
def test_links_from__pull_request__links_to_its_head_and_not_to_the_merge(variables, commit) -> None:
    links = links_from({**ENVIRON, **variables}, samples.run())

    assert links is not None
    assert links.commit == f"https://git.example/org/kernels/commit/{commit}"


def test_rendered__summary_of_a_pull_request__links_to_its_head_as_the_comment_does(folder) -> None:
    pull = {"GITHUB_REF": "refs/pull/12/merge", "AUTOTEST_HEAD_SHA": "5f" * 20}

    page = rendered(folder, "summary", None, {**ENVIRON, **pull})

    assert f"/org/kernels/blob/{'5f' * 20}/" in page
    assert "ab" * 20 not in page


def test_links_from__run_that_is_no_number__offers_no_download() -> None:
    links = links_from({**ENVIRON, "GITHUB_RUN_ID": "x; rm -rf /"}, samples.run())

    assert links is not None
    assert links.replay("a-1") == ""


def test_links__prefix__is_the_configuration_s_folder() -> None:
    environment = msgspec.structs.replace(samples.run().environment, folder="lib")
    links = links_from(ENVIRON, samples.run(environment=environment))

    assert links is not None
    assert links.source(samples.finding().location) == (
        f"https://git.example/org/kernels/blob/{'ab' * 20}/lib/autotests/autotest_norms.py#L12"
    )
