"""The folder of generated tests: what is there is never lost, because people change these files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.call_capture.call_groups import TESTS
from ci_autotest.call_capture.columns import Columns
from ci_autotest.call_capture.file_texts import file_texts, is_file_of
from ci_autotest.call_capture.stored_data import array_at, arrays_of
from ci_autotest.call_capture.tensor_spool import ALL_BYTES, TENSOR_BYTES
from ci_autotest.errors import OutputError, UsageError
from ci_autotest.program.npz import write_npz

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ci_autotest.call_capture.file_texts import TestFile
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


def write_tests(
    capture: Capture, folder: Path, program: str, limit: int = TESTS, spool: Path | None = None
) -> list[str]:
    """Write the tests of a capture in place of older ones, and return what to print.

    Args:
        capture: What was captured.
        folder: Where the files go.
        program: The program, as its caller named it.
        limit: Number of tests at most.
        spool: The file with the elements that are stored (``TensorSpool``); ``None`` if none are.

    Raises:
        OutputError: The folder cannot be written.
    """
    files, omissions = file_texts(capture, program, limit)
    tests = sum(len(file.tests) for file in files.values())
    lines = []
    if files:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in _old_files(folder, program):
                old.unlink()
            for name, file in files.items():
                (folder / name).write_text(file.text, encoding="utf-8")
            stored = _write_data(files.values(), folder, spool) if spool is not None else []
        except OSError as error:
            message = f"{folder} cannot be written: {error.strerror}. Choose another folder with --output."
            raise OutputError(message) from error
        operators = len({call.target for call in capture.calls})
        calls = f"{capture.count:,} calls" if capture.is_complete else f"{len(capture.calls):,} kinds of calls"
        where = folder / next(iter(files)) if len(files) == 1 else f"{len(files)} files of {folder}"
        lines.append(
            f"captured {calls} of {operators} operators: {tests} {'test' if tests == 1 else 'tests'} in {where}"
        )
        lines += stored
    else:
        lines.append(f"{program} called no operator of torch that can be captured.")
    lines += [f"not captured: {one.name}: {one.count:,}, {one.reason}" for one in omissions[:_SHOWN]]
    if len(omissions) > _SHOWN:
        lines.append(f"not captured: {len(omissions) - _SHOWN} more; the first file lists them")
    return lines


def _write_data(files: Iterable[TestFile], folder: Path, spool: Path) -> list[str]:
    """Write the elements that are stored beside each file of tests, and return what to print."""
    count = size_bytes = left_out = 0
    for file in files:
        arrays = [
            (key, place)
            for test in file.tests
            for key, place in arrays_of(test.group, test.name, Columns(test.group).tensors)
        ]
        left_out += sum(test.group.is_left_out(index) for test in file.tests for index in range(len(test.group.slots)))
        if arrays:
            path = folder / file.data_file
            write_npz(path, ((key, array_at(spool, *place)) for key, place in arrays))
            count, size_bytes = count + len(arrays), size_bytes + path.stat().st_size
    tensors = "1 tensor" if count == 1 else f"{count:,} tensors"
    lines = [f"stored beside them: {tensors} in {_size(size_bytes)}"] if count else []
    if left_out:
        inputs = "1 input is" if left_out == 1 else f"{left_out:,} inputs are"
        limits = f"of one tensor at most {_size(TENSOR_BYTES)} are stored, of all {_size(ALL_BYTES)}"
        lines.append(f"not stored: {inputs} drawn, because {limits}")
    return lines


def _size(size_bytes: int) -> str:
    """Return a size in the unit that suits it."""
    return f"{size_bytes / (1 << 20):.3g} MiB" if size_bytes >= 1 << 20 else f"{max(1, size_bytes >> 10)} KiB"


def _old_files(folder: Path, program: str) -> list[Path]:
    # By its whole name, because `autotest_train_gan.py` may be of another program, or written by hand.
    own = (path for path in sorted(folder.iterdir()) if path.suffix in {".py", ".npz"}) if folder.is_dir() else ()
    return [path for path in own if is_file_of(path.stem, program)]
