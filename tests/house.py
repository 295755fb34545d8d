"""What makes the package hard to read, counted: each count may fall, not rise (``make check``).

``python -m tests.house`` ends with 1 if a count is above that of ``house.json``, and writes the file anew if one is below.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LIMITS: Final = ROOT / "tests" / "house.json"
#: Modules below this number of lines that only one other imports belong into that one, unless they are a concept.
SMALL: Final = 60
#: Words that say little where a noun says more, and names of variables that do.
WORDS: Final = ("what", "whose", "alone")
NAMES: Final = ("found", "each", "own", "given")


def counts() -> dict[str, float]:
    """Return every count of the package."""
    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "ci_autotest").rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    lines = sum(len(text.splitlines()) for text in texts.values())
    prose = [part for path, tree in trees.items() for part in (*docstrings(tree), *comments(texts[path]))]
    words = Counter(word.lower() for part in prose for word in re.findall(r"[A-Za-z']+", part))
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ternaries = sum(isinstance(node, ast.IfExp) for node in nodes)
    splats = sum(isinstance(node, ast.Starred) and isinstance(node.value, ast.IfExp) for node in nodes)
    per_thousand = {
        "`Any` per 1,000 lines": sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes),
        "ternaries per 1,000 lines": ternaries,
        "splats of a conditional list per 1,000 lines": splats,
        **{f"variables named {name!r} per 1,000 lines": stored[name] for name in NAMES},
    }
    return {
        "small modules with one importer": small_modules(texts, trees),
        **{name: round(1000 * count / lines, 1) for name, count in per_thousand.items()},
        **{f"{word!r} per 10,000 words of prose": round(1e4 * words[word] / words.total(), 1) for word in WORDS},
    }


def docstrings(tree: ast.Module) -> list[str]:
    """Return the docstrings of a module."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]


def comments(text: str) -> list[str]:
    """Return the comments of a text, but for those that tools read."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = (token.string.lstrip("#: ") for token in tokens if token.type == tokenize.COMMENT)
    return [comment for comment in found if not comment.startswith(("type:", "noqa", "fmt:"))]


def small_modules(texts: dict[Path, str], trees: dict[Path, ast.Module]) -> int:
    """Return the number of small modules that one other module imports."""
    importers = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    importers[name].add(path)
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in texts}
    return sum(len(importers[names[path]]) == 1 and len(text.splitlines()) < SMALL for path, text in texts.items())


def main() -> int:
    """Compare the counts with their limits, and write these anew if they have fallen."""
    limits, now = json.loads(LIMITS.read_text("utf-8")), counts()
    risen = [f"{name}: {now[name]:g}, at most {limits[name]:g}" for name in limits if now[name] > limits[name]]
    if risen:
        sys.stderr.write("\n  ".join(["the package has become harder to read:", *risen]) + "\n")
        return 1
    if now != limits:
        LIMITS.write_text(json.dumps(now, indent=2, ensure_ascii=False) + "\n", "utf-8")
        sys.stdout.write(f"counts have fallen: commit {LIMITS.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
