"""``python -m docs.pictures [FOLDER]``: the pictures of the documentation, from real runs, in a headless browser.

A comment is rendered by GitHub's own Markdown renderer (cmark-gfm) with GitHub's style sheet, its graphs by mermaid.
Needs Chromium, npm and the dependency group ``docs``.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import cmarkgfm
from cmarkgfm.cmark import Options
from PIL import Image

from tests.documentation import fences
from tests.npm import fetched

DOCS: Final = Path(__file__).resolve().parent
GREATEST_BYTES: Final = 150_000
WIDTH: Final = 820
PAGE_SIZE: Final = "1100,1010"
_MERMAID: Final = re.compile(r'<pre lang="mermaid"><code>(.*?)</code></pre>', re.DOTALL)
_TASK: Final = """<!doctype html><meta charset="utf-8"><style>{style}
body {{ margin: 0; background: #fff }} .markdown-body {{ padding: 24px; max-width: {width}px; box-sizing: border-box;
border: 1px solid #d1d9e0; border-radius: 6px; margin: 8px }} .markdown-body pre {{ white-space: pre-wrap }}</style>
<article class="markdown-body">{body}</article><script>{mermaid}</script><script>
(async () => {{ mermaid.initialize({{startOnLoad: false}}); await mermaid.run();
document.title = Math.ceil(document.querySelector("article").getBoundingClientRect().bottom) + 8 }})()</script>"""


def browser() -> str:
    """Return the command of a headless browser.

    Raises:
        SystemExit: There is none.
    """
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    sys.exit("no Chromium found. Install it (Debian: apt-get install chromium), then run this again.")


def page(markdown: str) -> str:
    """Return Markdown as the page that GitHub would show."""
    body = cmarkgfm.github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE)
    body = _MERMAID.sub(lambda match: f'<pre class="mermaid">{match[1]}</pre>', body)
    return _TASK.format(
        style=fetched("github-markdown-css@5.9.0", "github-markdown-light.css").read_text("utf-8"),
        mermaid=fetched("mermaid@12.3.0", "dist/mermaid.min.js").read_text("utf-8"),
        body=body,
        width=WIDTH,
    )


def picture(markdown: str, target: Path) -> None:
    """Write what GitHub would show of ``markdown`` to ``target``, whole.

    Raises:
        SystemExit: The picture is larger than is kept in a repository.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "page.html"
        source.write_text(page(markdown), encoding="utf-8")
        height = int(html.unescape(_title(_browse(source, "--dump-dom", f"--window-size={WIDTH + 20},900"))))
        _browse(source, f"--screenshot={target}", f"--window-size={WIDTH + 20},{height}")
    _kept_small(target)


def _kept_small(target: Path) -> None:
    Image.open(target).convert("RGB").quantize(64).save(target, optimize=True)  # text needs no more colours
    if target.stat().st_size > GREATEST_BYTES:
        sys.exit(f"{target} has {target.stat().st_size:,} bytes; at most {GREATEST_BYTES:,} are kept. Show less.")


def _browse(source: Path, *options: str) -> str:
    command = [
        browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--virtual-time-budget=20000", *options, source.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def _title(dom: str) -> str:
    found = re.search(r"<title>(\d+)</title>", dom)
    if found is None:
        sys.exit("the page was not laid out in time.")
    return found[1]


def comment_of(page: Path) -> str:
    """Return the comment of a run on the files that a page shows before its first command."""
    return files_of(page, "comment.md")


def picture_of_page(page: Path, target: Path) -> None:
    """Write what a browser shows of a run's ``index.html``, with its first finding open."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "index.html"
        text = files_of(page, "index.html").replace('<details class="panel"', '<details open class="panel"', 1)
        # The finding alone: what is above it differs from run to run.
        source.write_text(
            text.replace("</style>", "header, section:not(#findings) { display: none }</style>", 1), "utf-8"
        )
        _browse(source, f"--screenshot={target}", f"--window-size={PAGE_SIZE}")
    _kept_small(target)


def files_of(page: Path, name: str) -> str:
    """Return a file of the report of a run on the files that a page shows before its first command."""
    with tempfile.TemporaryDirectory() as project:
        for fence in fences(page.read_text("utf-8")):
            if fence.file:
                path = Path(project) / fence.file
                path.parent.mkdir(exist_ok=True)
                path.write_text(fence.body, encoding="utf-8")
            elif fence.language == "console":
                break
        subprocess.run([sys.executable, "-m", "ci_autotest", "run"], cwd=project, check=False)
        return (Path(project) / "autotest-report" / name).read_text("utf-8")


def main(folder: Path) -> None:
    """Take the comment of the quickstart, a comment with its graph unfolded, and the page of a report."""
    folder.mkdir(parents=True, exist_ok=True)
    picture(comment_of(DOCS / "quickstart.md"), folder / "comment.png")
    accumulated = comment_of(DOCS / "explanation" / "blame.md")
    picture(accumulated.replace("<details>", "<details open>", 1), folder / "graph.png")
    picture_of_page(DOCS / "how-to" / "page.md", folder / "page.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "pictures")
