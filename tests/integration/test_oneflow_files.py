"""OneFlow's style of files: each of the thirty is imported, recorded and compared with torch, in this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.errors import AuthorError, UnsupportedReason
from ci_autotest.run.worker.tests import Library
from ci_autotest.values.case import test_key as stream_key
from tests.engine import attempts, judged
from tests.oneflow_files import BROKEN, FILES, OTHERS, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from ci_autotest.backends.trace import Attempt

CASES = 2


def library_of(name: str, folder: Path) -> tuple[Library, str]:
    (folder / f"test_{name}.py").write_text(text_of(name))
    return Library(folder, "oneflow"), f"test_{name}.py"


def outcome(attempt: Attempt) -> str:
    if attempt.skipped:
        return "skipped"
    return "unsupported" if attempt.unsupported else judged(attempt, TorchBackend()).verdict.outcome


def outcomes(library: Library, file: str) -> dict[str, set[str]]:
    """Return the outcomes of the first accepted attempts at each test, or ``broken``."""
    found: dict[str, set[str]] = {}
    for info in library.tests(file):
        try:
            declaration, call = library.find(info)
            key = stream_key(0, info.id)
            # Which elements `random_tensor` draws decides whether the reference takes them: a few attempts are enough.
            drawn = [
                next(each for number in range(20) if not (each := attempts().attempt(declaration, call, (key, info.id, case, number))).is_rejected)
                for case in range(CASES)
            ]  # fmt: skip
            found[info.name] = set(map(outcome, drawn))
        except AuthorError:
            found[info.name] = {"broken"}
    return found


@pytest.mark.parametrize("name", FILES)
def test_library__file_in_oneflows_style__has_its_outcomes(name: str, tmp_path: Path):
    library, file = library_of(name, tmp_path)
    found = outcomes(library, file)
    assert found
    broken = {test for own, test in BROKEN if own == name}
    lost = {f"{each.name} (line {each.line})" for each in library.lost(file)}
    assert lost == {test for test in broken if "(line" in test}
    expected = {test: {OTHERS.get(name, {}).get(test, "aligned")} for test in found}
    assert found == expected | {test: {"broken"} for test in broken - lost}
    assert set(OTHERS.get(name, {})) <= set(found)


def test_library__ranks_and_missing_names__have_their_reasons(tmp_path: Path):
    reasons = {}
    for name in ("ranks", "missing"):
        library, file = library_of(name, tmp_path)
        for info in library.tests(file):
            declaration, call = library.find(info)
            attempt = attempts().attempt(declaration, call, (stream_key(0, info.id), info.id, 0, 0))
            reasons[info.name] = attempt.unsupported and attempt.unsupported.reason
    ranks, other = UnsupportedReason.RANKS, UnsupportedReason.OTHER_API
    assert reasons == {
        "TestIt.test_loops": None, "TestIt.test_generators": None, "TestIt.test_below": None,
        "TestIt.test_only_placed": ranks, "TestIt.test_not_global": None, "TestOneProcess.test_creation": ranks,
        "TestOneProcess.test_attribute": ranks, "TestOneProcess.test_local": ranks, "TestOneProcess.test_module": None,
        "TestIt.test_function": other, "TestIt.test_class": other,
        "TestIt.test_attribute": other, "TestIt.test_other": None,
    }  # fmt: skip


def test_library__table_tests__are_counted(tmp_path: Path):
    library, file = library_of("tables", tmp_path)
    assert library.foreign(file) == 1
    assert Library(tmp_path).foreign(file) == 0


def test_library__import_answered__is_gone_afterwards(tmp_path: Path):
    real = type(sys)("oneflow")
    sys.modules["oneflow"] = real
    try:
        library, file = library_of("operators", tmp_path)
        library.tests(file)
        assert sys.modules["oneflow"] is real
        assert [name for name in sys.modules if name.startswith("oneflow.")] == []
    finally:
        del sys.modules["oneflow"]


def test_library__without_compat__says_which_option_runs_the_file(tmp_path: Path):
    _, file = library_of("operators", tmp_path)
    with pytest.raises(
        ImportError, match=r"no module 'oneflow' here\. Files of oneflow's own tests run with `--compat oneflow`"
    ):
        Library(tmp_path).tests(file)
