"""The folder of generated tests: what is there is never lost, because people change these files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.call_capture.call_groups import TESTS
from ci_autotest.call_capture.file_texts import file_texts, is_file_of
from ci_autotest.errors import OutputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ci_autotest.call_capture.observation import Capture

#: Omissions that are printed.
_SHOWN: Final = 8


def check_folder(folder: Path, program: str, *, is_forced: bool = False) -> None:
    """Refuse a folder that has tests of the same program.

    Raises:
        UsageError: There are such tests, and they are not to be replaced; or the folder is a file.
    """
    if folder.exists() and not folder.is_dir():
        message = f"'{folder}' is a file. Name a folder for the tests with --output."
        raise UsageError(message)
    old = _old_files(folder, program)
    if old and not is_forced:
        message = (
            f"{old[0]} exists, and somebody may have changed it. Choose another folder with --output, or replace it "
            "with --force."
        )
        raise UsageError(message)


def write_tests(capture: Capture, folder: Path, program: str, limit: int = TESTS) -> list[str]:
    """Write the tests of a capture in place of older ones, and return what to print.

    Args:
        capture: What was captured.
        folder: Where the files go.
        program: The program, as its caller named it.
        limit: Number of tests at most.

    Raises:
        OutputError: The folder cannot be written.
    """
    files, tests, omissions = file_texts(capture, program, limit)
    lines = []
    if files:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in _old_files(folder, program):
                old.unlink()
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            message = f"{folder} cannot be written: {error.strerror}. Choose another folder with --output."
            raise OutputError(message) from error
        operators = len({call.target for call in capture.calls})
        calls = f"{capture.count:,} calls" if capture.is_complete else f"{len(capture.calls):,} kinds of calls"
        where = folder / next(iter(files)) if len(files) == 1 else f"{len(files)} files of {folder}"
        lines.append(
            f"captured {calls} of {operators} operators: {tests} {'test' if tests == 1 else 'tests'} in {where}"
        )
    else:
        lines.append(f"{program} called no operator of torch that can be captured.")
    lines += [f"not captured: {one.name}: {one.count:,}, {one.reason}" for one in omissions[:_SHOWN]]
    if len(omissions) > _SHOWN:
        lines.append(f"not captured: {len(omissions) - _SHOWN} more; the first file lists them")
    return lines


def _old_files(folder: Path, program: str) -> list[Path]:
    # By its whole name, because `autotest_train_gan.py` may be of another program, or written by hand.
    return [path for path in sorted(folder.glob("*.py")) if is_file_of(path.stem, program)]
