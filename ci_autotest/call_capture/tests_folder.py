"""The folder of generated tests, and the texts of its files.

What is there is never lost, because people change these files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from ci_autotest.call_capture.call_groups import TESTS, call_groups
from ci_autotest.call_capture.function_text import Columns, function_lines, function_name
from ci_autotest.call_capture.journal import ALL_BYTES, TENSOR_BYTES
from ci_autotest.call_capture.layout_text import WIDTH, Bracketed, laid_out
from ci_autotest.call_capture.stored_data import array_at, arrays_of
from ci_autotest.errors import OutputError, UsageError
from ci_autotest.program.npz import write_npz
from ci_autotest.program.written_values import is_in_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ci_autotest.call_capture.call_groups import CallGroup
    from ci_autotest.call_capture.observation import Capture, Omission


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


def _write_data(files: Iterable[_TestFile], folder: Path, spool: Path) -> list[str]:
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
    return [path for path in own if _is_file_of(path.stem, program)]


# The files of a capture: tests by family of operators, each file short enough to be read.


#: Families of operators; a large capture has a file for each.
_Family: TypeAlias = Literal[
    "layers", "initialization", "linalg", "fft", "special", "indexing", "functions", "in_place", "methods"
]
#: Lines of a file at most.
LINES: Final = 400
_NAMES: Final = (
    "autotest", "choice_tensor", "cpu_device", "gpu_device", "oneof", "permutation_tensor",
    "positive_definite_tensor", "random_tensor", "stored_tensor", "symmetric_tensor", "torch",
)  # fmt: skip
#: Omissions that the first file lists.
_LISTED: Final = 20


def file_stem(program: str) -> str:
    """Return the name of the first file without its suffix: ``autotest_train`` for ``train.py``."""
    stem = re.sub(r"\W+", "_", program.rpartition("/")[2].removesuffix(".py")).strip("_")
    return f"autotest_{stem or 'program'}"


def _is_file_of(name: str, program: str) -> bool:
    """Whether a file has the name of one that a capture of the program writes.

    Args:
        name: Without its suffix.
        program: The program, as its caller named it.
    """
    family = "|".join(get_args(_Family))
    return re.fullmatch(rf"{file_stem(program)}(_({family})(_\d+)?)?", name) is not None


@dataclass(frozen=True, slots=True)
class Test:
    """A test of a file.

    Args:
        name: Its name.
        group: Its calls.
        lines: Its text.
    """

    name: str
    group: CallGroup
    lines: list[str]


@dataclass(frozen=True, slots=True)
class _TestFile:
    """A file of tests.

    Args:
        text: The text.
        data_file: Name of the file beside it with the elements that are stored.
        tests: The tests.
    """

    text: str
    data_file: str
    tests: list[Test]


def file_texts(capture: Capture, program: str, limit: int = TESTS) -> tuple[dict[str, _TestFile], list[Omission]]:
    """Return the files by name, and everything that became no test.

    Args:
        capture: What was captured.
        program: The program, as its caller named it.
        limit: Number of tests at most.
    """
    groups, dropped = call_groups(capture.calls, limit)
    omissions = [*capture.omissions, *dropped]
    stem = file_stem(program)
    files = {}
    for number, (part, tests) in enumerate(_parts(groups, stem)):
        lines = [line for test in tests for line in ("", "", *test.lines)]
        data_file = f"{part}.npz"
        header = _header(capture, program, omissions if number == 0 else [], data_file if _has_data(tests) else "")
        text = "\n".join([*header, *_imports(lines), *lines, ""])
        files[f"{part}.py"] = _TestFile(text, data_file, tests)
    return files, omissions


def _has_data(tests: Sequence[Test]) -> bool:
    return any(test.group.is_stored(index) for test in tests for index in range(len(test.group.slots)))


def _parts(groups: Sequence[CallGroup], stem: str) -> list[tuple[str, list[Test]]]:
    """Return the tests of each file: one file if they fit, else one for each family, or several of a large one."""
    whole = _named(groups, stem)
    if sum(len(test.lines) + 2 for test in whole) + _LISTED <= LINES:
        return [(stem, whole)] if whole else []
    families: dict[_Family, list[CallGroup]] = {}
    for group in groups:
        families.setdefault(_family(group), []).append(group)
    found = []
    for family, own in families.items():
        files: list[list[CallGroup]] = [[]]
        used = _LISTED + 20
        for group in own:
            size = len(function_lines(group, "name", f"{stem}_{family}.npz")) + 2
            if used + size > LINES and files[-1]:
                files.append([])
                used = _LISTED + 20
            files[-1].append(group)
            used += size
        for at, part in enumerate(files):
            name = f"{stem}_{family}" if at == 0 else f"{stem}_{family}_{at + 1}"
            found.append((name, _named(part, name)))
    return found


def _named(groups: Sequence[CallGroup], stem: str) -> list[Test]:
    """Return the tests of a file, which has a name without suffix."""
    taken: set[str] = set()
    names = [function_name(group, taken) for group in groups]
    return [
        Test(name, group, function_lines(group, name, f"{stem}.npz")) for name, group in zip(names, groups, strict=True)
    ]


def _family(group: CallGroup) -> _Family:
    """Return the family of a test: the last part of its operator's namespace, in a plural that reads well."""
    namespace, _, name = group.step.target.rpartition(".")
    match namespace:
        case "torch.nn.functional":
            return "layers"
        case "torch.nn.init":
            return "initialization"
        case "torch.linalg":
            return "linalg"
        case "torch.fft":
            return "fft"
        case "torch.special":
            return "special"
        case "operator" if name in {"getitem", "setitem"}:
            return "indexing"
        case "torch":
            return "functions"
        case _:
            return "in_place" if is_in_place(group.step.target) else "methods"


def _header(capture: Capture, program: str, omissions: Sequence[Omission], data_file: str) -> list[str]:
    version = f" with torch {capture.torch}" if capture.torch else ""
    lines = [
        f'"""Operator calls of {_plain(program)}, captured{version}. Change them as you like.',
        "",
        "Sizes, dtypes, layouts and arguments are those of the program. Elements are drawn",
        "from the ranges that it had.",
    ]
    if data_file:
        lines[2:] = [
            "Sizes, dtypes, layouts and arguments are those of the program. So are the elements in",
            f"{data_file}; all others are drawn from the ranges that it had.",
        ]
    if not capture.is_complete:
        lines += ["", "The program ended early: the ranges are those of each first call, and calls", "are not counted."]
    if omissions:
        lines += ["", "Not captured:"]
        lines += [f"* {_plain(one.name)}: {_calls(one.count)}, {_plain(one.reason)}" for one in omissions[:_LISTED]]
        lines += [f"* and {len(omissions) - _LISTED} more"] if len(omissions) > _LISTED else []
    return [*lines, '"""', ""]


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count:,} calls"


def _plain(text: str) -> str:
    """Return a text that cannot end the docstring."""
    return text.replace("\\", "/").replace('"', "'")


def _imports(lines: Sequence[str]) -> list[str]:
    text = "\n".join(line for line in lines if not line.startswith("#"))
    used = tuple(name for name in _NAMES if re.search(rf"(?<![\w.]){name}\b", text))
    line = f"from ci_autotest import {', '.join(used)}"
    return [line] if len(line) <= WIDTH else laid_out("from ci_autotest import ", Bracketed("(", used), indent=0)
