"""Pages of the documentation, run as a reader would follow them.

A page is followed in an empty folder, from top to bottom:

- a fence whose first line is the comment ``# FILE`` is written to that file;
- a ``console`` fence holds commands after ``$`` and what each one prints; a line ``...`` stands for any number of lines;
- a fence after ``<!-- not run: REASON -->`` is shown only. Every other fence of a shell is an error.

``python -m tests.documentation PAGE...`` writes what the commands print into the pages, where it differs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from tests import fork_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
_FENCE: Final = re.compile(
    r"(?:^[ ]*<!-- not run: (?P<reason>[^\n]+?) -->\n+)?"
    r"^(?P<indent>[ ]*)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_FILE: Final = re.compile(r"# ([\w./-]+\.(?:py|yml))\n")
_SHELLS: Final = {"sh", "bash", "shell"}
_MARK: Final = "::end of command::"
#: What differs from one run to the next, or from one machine to the next.
_VARYING: Final = (
    (re.compile(r"\d[\d,.]* (cases|tests)/s"), r"N \1/s"),
    (re.compile(r"\b\d[\d,.]* (s|ms|min|MB|MiB|GB|GiB)\b"), r"N \1"),
    (re.compile(r"(?<=in )\d+\.\d+s\b"), "Ns"),
    (re.compile(r" +\d+\.\d+(?=( +\d+\.\d+)*$)"), " N"),
    (re.compile(r"( +compiling)? +s$"), r"\1 s"),  # Columns of seconds are as wide as the longest time.
    (re.compile(r"(?<= left)  \S+$"), ""),  # Which test a line of progress names is a matter of speed.
    (re.compile(r"\b2\.\d+\.\d+(\+\w+)?"), "VERSION"),
    (re.compile(r"[ \t]+$"), ""),
)


#: What a command says only while something takes long.
_WHILE_IT_LASTS: Final = re.compile(
    r"finding \d+ of \d+, about |importing the tests: |(?P<done>[\d,]+) / (?!(?P=done) )[\d,]+ (?:cases|tests), "
)


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page.

    Attributes:
        line: Number of its first line.
        language: The first word of its info string.
        file: Where it is written to, or ``""``.
        reason: Why it is not run, or ``None``.
        body: Its text, without the page's indentation.
        span: Where the body lies in the page.
        indent: The indentation of its lines in the page.
    """

    line: int
    language: str
    file: str
    reason: str | None
    body: str
    span: tuple[int, int]
    indent: str


@dataclass(frozen=True)
class Printed:
    """A command of a page, what the page shows and what it printed."""

    line: int
    command: str
    shown: str
    printed: str

    @property
    def is_shown(self) -> bool:
        pattern = "".join(
            r"(?:.*\n)*?" if line.strip() == "..." else re.escape(_masked(line)) + r"\n"
            for line in self.shown.splitlines()
        )
        return re.fullmatch(pattern, "".join(_masked(line) + "\n" for line in self.printed.splitlines())) is not None


def fences(page: str) -> list[Fence]:
    """Return the fenced blocks of a page, in order."""
    found = []
    for match in _FENCE.finditer(page):
        indent = match["indent"]
        body = re.sub(rf"^{indent}", "", match["body"], flags=re.MULTILINE)
        file = _FILE.match(body)
        found.append(
            Fence(
                line=page.count("\n", 0, match.start("info")) + 1,
                language=match["info"].strip().split(" ", 1)[0],
                file=file[1] if file else "",
                reason=match["reason"],
                body=body,
                span=match.span("body"),
                indent=indent,
            )
        )
    return found


def objections(page: str) -> list[str]:
    """Return what no test looks at in a page: commands that are neither run nor excused, code that does not parse."""
    found = []
    for fence in fences(page):
        if fence.reason is not None:
            continue
        if fence.language in _SHELLS:
            found.append(f"line {fence.line}: commands stand in a `console` fence, or after `<!-- not run: REASON -->`")
        try:
            if fence.language == "python":
                compile(fence.body, f"line {fence.line}", "exec")
            if fence.language == "yaml":
                list(yaml.safe_load_all(fence.body))
        except (SyntaxError, yaml.YAMLError) as error:
            found.append(f"line {fence.line}: {error}")
    return found


def commands(console: str) -> list[tuple[int, str, str]]:
    """Return the commands of a ``console`` fence: the offset of its line, the command, and what is shown after it."""
    lines = console.splitlines(keepends=True)
    starts = [index for index, line in enumerate(lines) if line.startswith("$ ")]
    return [
        (start, lines[start][2:].rstrip("\n"), "".join(lines[start + 1 : end]))
        for start, end in pairwise([*starts, len(lines)])
    ]


def follow(page: str, folder: Path) -> Iterator[tuple[Fence, list[Printed]]]:
    """Do in ``folder`` what the page says; yield each ``console`` fence with what its commands printed."""
    with _Shell(folder) as shell:
        for fence in fences(page):
            if fence.reason is not None:
                continue
            if fence.file:
                path = folder / fence.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(fence.body, encoding="utf-8")
            elif fence.language == "console":
                yield (
                    fence,
                    [
                        Printed(fence.line + 1 + offset, command, shown, shell.run(command))
                        for offset, command, shown in commands(fence.body)
                    ],
                )


class _Shell:
    """One shell for a page, so that ``cd`` and ``$?`` are what a reader's are."""

    def __init__(self, folder: Path) -> None:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST", "COV_", "GITHUB_")) and name != "PYTHONPATH"
        }
        environment |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        server = fork_server.variables()
        if os.environ.get("PYTHONPATH"):
            environment["PYTHONPATH"], server = str(ROOT), {}
        self._folder = folder
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env={**environment, **server}, text=True,
            pass_fds=[int(number) for number in server.values()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, command: str) -> str:
        """Run a command; return what it printed, with the folder's name as ``~``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{{ {command}; }} < /dev/null\nstatus=$?; echo '{_MARK}'; (exit $status)\n")
        self._process.stdin.flush()
        printed = []
        for line in self._process.stdout:
            if line.endswith(f"{_MARK}\n"):
                printed.append(line.removesuffix(f"{_MARK}\n"))
                break
            if not _WHILE_IT_LASTS.match(line):
                printed.append(line)
        text = "".join(printed).replace(str(self._folder), "~")
        return f"{text}\n" if text and not text.endswith("\n") else text


def _masked(line: str) -> str:
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line


def updated(page: str, folder: Path) -> str:
    """Return the page with what its commands print; what is shown in parts, with ``...``, stays."""
    pieces: list[tuple[tuple[int, int], str]] = []
    for fence, results in follow(page, folder):
        body = "".join(
            f"$ {each.command}\n{each.shown if each.is_shown or '...' in each.shown.split() else each.printed}"
            for each in results
        )
        pieces.append((fence.span, re.sub(r"^(?=.)", fence.indent, body, flags=re.MULTILINE)))
        for each in results:
            if "..." in each.shown.split() and not each.is_shown:
                sys.stderr.write(f"line {each.line}: {each.command}\n{each.printed}\n")
    for (start, end), body in reversed(pieces):
        page = page[:start] + body + page[end:]
    return page


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        with tempfile.TemporaryDirectory() as temporary:
            path.write_text(updated(path.read_text("utf-8"), Path(temporary).resolve()), encoding="utf-8")
