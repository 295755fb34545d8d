"""The files of a finding's folder: its repro with the values that fill its template, its program and its text."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.program.repro.host_script import host_repro_text
from ci_autotest.program.repro.operator_modules import operator_modules
from ci_autotest.program.repro.script_facts import ScriptFacts
from ci_autotest.program.repro.snippet_sides import own_names
from ci_autotest.program.repro.torch_script import repro_text
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.report.comment_text import render_finding
from ci_autotest.report.finding_message import message_lines
from ci_autotest.report.finding_program import has_backward
from ci_autotest.values.tolerance import tolerance_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.recording import Recording
    from ci_autotest.values.finding import Finding

_PASTED: Final = """import sys
try:
    exec(compile({text!r}, "pasted", "exec"), {{"__name__": "__main__"}})
except AssertionError:
    sys.exit(1)
except BaseException:
    sys.exit(2)
"""
#: Seconds that an interpreter may take to import its framework.
_START_S: Final = 10.0


def repro_script(
    recording: Recording, finding: Finding, folder: Path, modules: tuple[Path, ...], case_timeout_s: float
) -> str:
    """Return the repro of a finding.

    Args:
        recording: The smallest program.
        finding: The finding that the script's docstring describes.
        folder: The folder of the script.
        modules: Folders to search for the candidate's modules.
        case_timeout_s: Seconds that a case may take; the repro of a timeout waits that long.
    """
    difference = finding.difference
    dtypes = [spec.dtype for spec in recording.expected.values()] or ["float32"]
    default = tolerance_for(dtypes[0])
    facts = ScriptFacts(
        title=_in_docstring(f"{finding.outcome}: {finding.headline}"),
        lines=tuple(_in_docstring(line) for line in message_lines(finding)[1:]),
        rtol=difference.rtol if difference else default.rtol,
        atol=difference.atol if difference else default.atol,
        check_dtype=recording.note.rules is None or recording.note.rules.check_dtype,
        strictness=recording.note.strictness,
        kind=finding.kind,
        has_backward=has_backward(finding),
        # A case's limit does not include the import of the framework, and the script's process has to do that first.
        timeout_s=round(case_timeout_s + _START_S),
        folders=tuple(os.path.relpath(path, folder) for path in modules),
        versions=versions(recording),
    )
    return (host_repro_text if recording.note.host is not None else repro_text)(recording, facts)


def finding_files(recording: Recording, finding: Finding) -> dict[str, bytes]:
    """Return the files of a finding's folder, by name, without its script.

    Args:
        recording: The smallest program; its note names the test, so that it runs again by itself.
        finding: The finding of that program.
    """
    return {
        "program.json": encode_program(recording),
        "tensors.safetensors": encode_tensors(recording),
        "README.md": render_finding(finding).encode(),
    }


def located(recording: Recording, folders: Sequence[Path], case_timeout_s: float, output: str) -> Recording:
    """Return a recording whose note has the folders of the user's modules, relative to the current folder.

    Args:
        recording: The program.
        folders: Folders to search for the candidate's modules.
        case_timeout_s: Seconds that a case may take: the shown program of a hang waits no longer.
        output: The output folder as the user wrote it, in which the shown program finds large tensors.
    """
    here, found = Path.cwd(), []
    # Only the first part is looked for: what follows lies inside it.
    for module in {name.partition(".")[0] for name in own_names(recording.note) | operator_modules(recording.program)}:
        holders = [each for each in (here, *folders) if (each / module).is_dir() or (each / f"{module}.py").exists()]
        if holders and holders[0] != here:  # Modules in the current folder are found anyway.
            found.append(os.path.relpath(holders[0], here))
    note = msgspec.structs.replace(
        recording.note, folders=tuple(sorted(found)), case_timeout_s=case_timeout_s, output=output.rstrip("/")
    )
    return replace(recording, note=note)


def noted_case(recording: Recording, finding: Finding) -> Recording:
    """Return a recording whose note names the finding's case, without the output folder.

    The same run with another one writes the same bytes.
    """
    note = msgspec.structs.replace(
        recording.note, output="", test=finding.test, case=finding.case, seed=finding.seed, kind=finding.kind,
        operator=finding.operator,
    )  # fmt: skip
    return replace(recording, note=note)


def pasted_script(text: str, python: str = "") -> str:
    """Return a script that runs a shown program: it ends with 1 if an assertion fails, and with 2 by any other error.

    Args:
        text: The program.
        python: The interpreter of its framework; empty for this one.
    """
    script = _PASTED.format(text=text)
    if not python:
        return script
    return f"import subprocess, sys\nsys.exit(subprocess.run([{python!r}, '-c', {script!r}]).returncode)"


def versions(recording: Recording) -> str:
    """Return as text the versions that the program ran with."""
    system = f"{platform.system()} {platform.machine()}"
    note = recording.note
    more = "".join(f", {name} {version}" for name, version in note.libraries.items())
    own = f"Python {platform.python_version()}, torch {note.torch or 'unknown'}{more}, {system}"
    host = note.host
    if host is None:
        return own
    return f"{host.module} {host.version} on Python {host.on}; {own}"


def _in_docstring(text: str) -> str:
    """Return text that cannot end a docstring, contains no escapes and can be encoded."""
    plain = text.encode("utf-8", "replace").decode().replace("\0", "?")
    return plain.replace('"""', "'''").replace("\\", "/")
