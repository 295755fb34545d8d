"""Interpreters of other frameworks: the tests that need one are skipped, with the reason, where it could not be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci_autotest.environments import FOLDER, RECIPES

ROOT = Path(__file__).resolve().parent.parent


def path_of(name: str) -> Path:
    """Return where ``make candidates`` puts the interpreter of an environment."""
    assert name in RECIPES, f"no recipe makes {name!r}: {', '.join(RECIPES)}"
    return ROOT / FOLDER / name / "bin" / "python"


def lacking(name: str) -> str:
    """Return why an environment is not there, and what makes it; nothing where it is."""
    if path_of(name).is_file():
        return ""
    reason = ROOT / FOLDER / f"{name}.reason"
    said = reason.read_text(encoding="utf-8").strip() if reason.is_file() else "it was not made"
    return f"candidate {name}: {said}. Run: make candidates ONLY={name}"


def needs(name: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a file of tests that run in one of these environments."""
    return [pytest.mark.heavy, pytest.mark.skipif(bool(lacking(name)), reason=lacking(name) or "it is there")]


def python_of(name: str) -> Path:
    """Return the interpreter of an environment, or skip the test."""
    if said := lacking(name):
        pytest.skip(said)
    return path_of(name)
