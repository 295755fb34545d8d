"""The documentation is true: pages are followed in an empty folder, and the site builds strictly."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation import DOCS, ROOT, Printed, commands, fences, follow, objections
from tests.projects import Project

README = ROOT / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))
FOLLOWED = [
    page
    for page in PAGES
    if any(each.language == "console" and each.reason is None for each in fences(page.read_text("utf-8")))
]
GREATEST_PICTURE_BYTES = 150_000


def id_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [README, *PAGES], ids=id_of)
def test_page__every_block__is_run_or_says_why_not(page: Path):
    assert objections(page.read_text("utf-8")) == []


def test_objections__commands_in_a_plain_block__are_named():
    assert objections("text\n\n```sh\nrm -r x\n```\n") == [
        "line 3: commands stand in a `console` fence, or after `<!-- not run: REASON -->`"
    ]


def test_objections__code_that_does_not_parse__is_named():
    assert [each.partition(":")[0] for each in objections("```python\ndef\n```\n\n```yaml\na: [\n```\n")] == [
        "line 1",
        "line 5",
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "is_shown"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("took 3.1 s\n", "took 12 s\n", True),
        ("20 cases\n", "21 cases\n", False),
    ],
)
def test_printed__shown_beside_what_was_printed__says_whether_it_is_so(shown: str, printed: str, is_shown: bool):
    assert Printed(1, "x", shown, printed).is_shown is is_shown


def test_follow__files_and_commands__in_one_folder_and_one_shell(tmp_path: Path):
    page = "```python\n# a/b.py\nprint(1)\n```\n\n```console\n$ cd a && python b.py\n1\n$ ls; false\nb.py\n$ echo $?\n1\n```\n"
    [(_, printed)] = follow(page, tmp_path)
    assert [(each.command, each.printed) for each in printed] == [
        ("cd a && python b.py", "1\n"), ("ls; false", "b.py\n"), ("echo $?", "1\n"),
    ]  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("page", FOLLOWED, ids=id_of)
def test_page__followed_in_an_empty_folder__prints_what_it_shows(page: Path, tmp_path: Path):
    wrong = [
        f"line {each.line}: {each.command}\nshown:\n{each.shown}\nprinted:\n{each.printed}"
        for _, printed in follow(page.read_text("utf-8"), tmp_path)
        for each in printed
        if not each.is_shown
    ]
    assert not wrong, "\n".join([*wrong, f"`python -m tests.documentation {id_of(page)}` writes it anew"])


def test_readme__has_a_picture_and_one_screen_of_links():
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 120
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [each for each in linked if not (ROOT / each).exists()] == []


def test_readme__its_files__print_the_program_that_it_shows(tmp_path: Path):
    text = README.read_text("utf-8")
    project = Project(tmp_path)
    for fence in fences(text):
        if fence.file:
            project.write(fence.file, fence.body)
    shown = next(each.body for each in fences(text) if each.language == "text")
    done = project.run()
    assert done.status == 1
    assert shown.partition("  ...\n")[2] in done.out.replace("    \n", "\n")


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").glob("*.png")), ids=id_of)
def test_picture__kept_in_the_repository__is_small(picture: Path):
    assert picture.stat().st_size <= GREATEST_PICTURE_BYTES


def built(tree: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a copy of the documentation."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tree / "site")]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout, as far as the site needs it."""
    pytest.importorskip("mkdocs")
    shutil.copytree(DOCS, tmp_path / "docs")
    for name in (
        "ci_autotest",
        "workflows",
        "benchmarks",
        ".github",
        "action.yml",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "tests",
    ):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


@pytest.mark.heavy
def test_site__built_strictly__has_every_page_and_the_reference(tree: Path):
    done = built(tree)
    assert done.returncode == 0, done.stdout + done.stderr
    text = "".join(path.read_text("utf-8") for path in (tree / "site" / "reference").rglob("*.html"))
    assert [
        name
        for name in ("random_tensor", "case_timeout", "container-options", "--fail-on", "first_pair")
        if name not in text
    ] == []


@pytest.mark.heavy
@pytest.mark.parametrize(
    "faults",
    [
        [
            ("index.md", "(quickstart.md)", "(quickstart_.md)", "quickstart_.md"),
            ("index.md", "(found.md)", "(found.md#no-such-heading)", "no-such-heading"),
        ],
        [("releasing.md", "(../.github/workflows/release.yml)", "(../.github/no.yml)", ".github/no.yml")],
        [("reference/api.md", "::: ci_autotest.testing.oneof", "", "'oneof'")],
        [("reference/api.md", "testing.oneof", "testing.oneof\n\n::: ci_autotest.testing.no_such", "no_such")],
    ],
    ids=["page and anchor", "file of the repository", "public name left out", "name that is none"],
)
def test_site__with_a_fault__is_refused(tree: Path, faults: list[tuple[str, str, str, str]]):
    for page, old, new, _ in faults:
        path = tree / "docs" / page
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")
    done = built(tree)
    assert done.returncode != 0
    assert [said for *_, said in faults if said not in done.stdout + done.stderr] == []


def test_commands__of_a_fence__have_what_is_shown_after_them():
    assert commands("$ a\n1\n2\n$ b\n") == [(0, "a", "1\n2\n"), (3, "b", "")]
