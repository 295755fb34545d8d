"""Interpreters of other frameworks: the tests that need one are skipped, with the reason, where it could not be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci_autotest.recipes import FOLDER, RECIPES

ROOT = Path(__file__).resolve().parent.parent


def python_of(name: str) -> Path:
    """Return the interpreter of an environment that ``make candidates`` makes, or skip the test."""
    assert name in RECIPES, f"no recipe makes {name!r}: {', '.join(RECIPES)}"
    python, reason = ROOT / FOLDER / name / "bin" / "python", ROOT / FOLDER / f"{name}.reason"
    if not python.is_file():
        said = reason.read_text(encoding="utf-8").strip() if reason.is_file() else "it was not made"
        pytest.skip(f"candidate {name}: {said}. Run: make candidates ONLY={name}")
    return python
