"""The folders of findings in the output folder: written whole, and removed only if they are ours.

A finding's folder is ``findings/<id>``, and holds nothing but the files of ``FILES``.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import OutputError
from ci_autotest.report.atomic import beside, write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: What a finding's folder may hold.
FILES: Final = frozenset({"repro.py", "program.json", "tensors.safetensors", "README.md"})
#: The folder of the findings in the output folder.
FINDINGS: Final = "findings"

_ID: Final = re.compile(r"[a-z0-9_]+(-[a-z0-9_]+)*")
_TEMPORARY: Final = re.compile(r"\.[a-z0-9_-]+\.[0-9a-f]{8}\.tmp")
_GREATEST_ID: Final = 200


def is_finding_id(name: str) -> bool:
    """Whether ``name`` can be a finding's id, and so a folder's name: small letters, digits, ``_`` and inner ``-``."""
    return len(name) <= _GREATEST_ID and _ID.fullmatch(name) is not None


def check_writable(output: Path) -> None:
    """Try to write in the output folder, before hours of work that could not be saved; leave nothing behind.

    Raises:
        OutputError: It is a file, or cannot be made or written.
    """
    try:
        made = [folder for folder in (output, *output.parents) if not folder.exists()]
        probe = beside(output / "probe")
        output.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
        for folder in made:
            folder.rmdir()
    except (OSError, ValueError) as error:  # the latter of a name with a NUL
        shown, why = str(output)[:200], getattr(error, "strerror", None) or error
        message = f"the output folder {shown!r} cannot be written: {why}. Choose another with --output."
        raise OutputError(message) from error


def prepare(output: Path) -> None:
    """Make the output folder ready: findings of an earlier run are removed, and nothing else ever is.

    Raises:
        OutputError: The folder cannot be written.
    """
    check_writable(output)
    output.mkdir(parents=True, exist_ok=True)
    findings = output / FINDINGS
    if findings.is_symlink() or not findings.is_dir():
        return
    for folder in sorted(findings.iterdir()):
        if _is_own(folder):
            shutil.rmtree(folder)


def write_finding(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a finding's folder at once; one that is there already is replaced.

    Args:
        folder: ``<output>/findings/<id>``.
        files: Content by name; names are those of ``FILES``.

    Raises:
        OutputError: The id or a name is not allowed, or the folder cannot be written.
    """
    _check_finding(folder, files)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and not _is_own(folder):
            _write_into(folder, files)
        else:
            _replace(folder, files)
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}. Choose another folder with --output."
        raise OutputError(message) from error


def remove_finding(folder: Path) -> None:
    """Remove the folder of a finding that is told under another id; anything else is left alone."""
    if folder.is_dir() and not folder.is_symlink() and _is_own(folder):
        shutil.rmtree(folder)


def _check_finding(folder: Path, files: Mapping[str, bytes]) -> None:
    if not is_finding_id(folder.name):
        message = f"{folder.name[:80]!r} is no finding's id: small letters, digits, '_' and inner '-' only."
        raise OutputError(message)
    if strange := sorted(set(files) - FILES):
        message = f"finding {folder.name} has no file {strange[0][:80]!r}: only {', '.join(sorted(FILES))}."
        raise OutputError(message)
    if folder.is_symlink():
        message = f"{folder} is a link, and would be written where it points to. Remove it."
        raise OutputError(message)


def _is_own(folder: Path) -> bool:
    """Whether a folder bears a finding's name and holds a finding's files and nothing else."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    if _TEMPORARY.fullmatch(folder.name) is not None:
        return all(_is_finding_file(entry) for entry in folder.iterdir())
    entries = list(folder.iterdir()) if is_finding_id(folder.name) else []
    return bool(entries) and all(_is_finding_file(entry) for entry in entries)


def _is_finding_file(entry: Path) -> bool:
    return entry.name in FILES and entry.is_file() and not entry.is_symlink()


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write beside and rename: a folder cannot be renamed onto a full one, so the old one steps aside first."""
    fresh, old = beside(folder), beside(folder)
    try:
        fresh.mkdir()
        for name, data in files.items():
            (fresh / name).write_bytes(data)
        if folder.exists():
            folder.rename(old)
        try:
            fresh.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)  # What was there stays.
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _write_into(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write into a folder in which somebody keeps files of their own: those stay."""
    for name in FILES - set(files):
        (folder / name).unlink(missing_ok=True)
    for name, data in files.items():
        write_bytes(folder / name, data)
