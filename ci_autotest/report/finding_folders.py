"""The folders of findings in the output folder: written as a whole, and removed only if they are ours.

A finding's folder is ``findings/<id>`` and contains only the files of ``FILES``.
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

#: Files of a finding's folder.
FILES: Final = frozenset({"repro.py", "program.json", "tensors.safetensors", "README.md"})
#: The folder of the findings in the output folder.
FINDINGS: Final = "findings"

_ID: Final = re.compile(r"[a-z0-9_]+(-[a-z0-9_]+)*")
_TEMPORARY: Final = re.compile(r"\.[a-z0-9_-]+\.[0-9a-f]{8}\.tmp")
_GREATEST_ID: Final = 200


def is_finding_id(name: str) -> bool:
    """Whether ``name`` can be the id of a finding and its folder: lowercase letters, digits, ``_`` and inner ``-``."""
    return len(name) <= _GREATEST_ID and _ID.fullmatch(name) is not None


def check_writable(output: Path) -> None:
    """Try to write in the output folder and leave nothing behind, so that a long run does not end unsaved.

    Raises:
        OutputError: It is a file, or cannot be created or written.
    """
    try:
        made = [folder for folder in (output, *output.parents) if not folder.exists()]
        probe = beside(output / "probe")
        output.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
        for folder in made:
            folder.rmdir()
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        shown, why = str(output)[:200], getattr(error, "strerror", None) or error
        message = f"the output folder {shown!r} cannot be written: {why}. Choose another with --output."
        raise OutputError(message) from error


def prepare(output: Path) -> None:
    """Create the output folder and remove the findings of an earlier run, and nothing else.

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
    """Write a finding's folder at once; an existing one is replaced.

    Args:
        folder: ``<output>/findings/<id>``.
        files: Content by name, with names of ``FILES``.

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
    """Remove the folder of a finding that is now reported under another id; leave anything else alone."""
    if folder.is_dir() and not folder.is_symlink() and _is_own(folder):
        shutil.rmtree(folder)


def _check_finding(folder: Path, files: Mapping[str, bytes]) -> None:
    if not is_finding_id(folder.name):
        message = (
            f"{folder.name[:80]!r} is not a finding id. An id has lowercase letters, digits, '_' and inner '-' only."
        )
        raise OutputError(message)
    if strange := sorted(set(files) - FILES):
        message = (
            f"finding {folder.name} cannot have a file {strange[0][:80]!r}. It may have {', '.join(sorted(FILES))}."
        )
        raise OutputError(message)
    if folder.is_symlink():
        message = f"{folder} is a link, so its target would be overwritten. Remove the link."
        raise OutputError(message)


def _is_own(folder: Path) -> bool:
    """Whether a folder has a finding's name and only a finding's files."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    if _TEMPORARY.fullmatch(folder.name) is not None:
        return all(_is_finding_file(entry) for entry in folder.iterdir())
    entries = list(folder.iterdir()) if is_finding_id(folder.name) else []
    return bool(entries) and all(_is_finding_file(entry) for entry in entries)


def _is_finding_file(entry: Path) -> bool:
    return entry.name in FILES and entry.is_file() and not entry.is_symlink()


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a new folder beside the old one and rename both, because a folder cannot replace one that has files."""
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
                old.rename(folder)  # Keep the earlier finding.
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _write_into(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write into a folder that also has files of somebody else, and keep those."""
    for name in FILES - set(files):
        (folder / name).unlink(missing_ok=True)
    for name, data in files.items():
        write_bytes(folder / name, data)
