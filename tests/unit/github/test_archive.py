"""Hostile archives: each is refused with one sentence, or what is odd in it does no harm."""

from __future__ import annotations

import contextlib
import io
import stat
import zipfile

import pytest

from ci_autotest.errors import PublishError
from ci_autotest.github import archive
from ci_autotest.github.archive import opened
from tests.archives import made, patched, zipped

REPORT = b'{"schema": "x"}' * 100
HONEST = zipped({"report.json": REPORT, "findings/relu-1/program.json": b"{}", "findings/relu-1/": b""})
LINK = {"external_attr": (stat.S_IFLNK | 0o777) << 16}


class Stream:
    """Be written to and nothing else, as a socket is."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> int:
        self.written += data
        return len(data)

    def flush(self) -> None:
        """Do nothing."""


def refusal(data: bytes, entry: str = "report.json", most_bytes: int = 1 << 20) -> str:
    with pytest.raises(PublishError) as caught:
        opened("report", io.BytesIO(data)).read(entry, most_bytes)
    said = str(caught.value)
    return said.removeprefix("artifact 'report' is not read: ").removesuffix(
        ". It is not a report of ci-autotest; check what uploaded it."
    )


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_read__honest__is_the_content(method: int) -> None:
    found = opened("report", io.BytesIO(zipped({"report.json": REPORT, "findings/relu-1/program.json": b"x"}, method)))

    assert (found.read("report.json", 10_000), "findings/relu-1/program.json" in found) == (REPORT, True)


def test_read__written_as_a_stream__is_the_content() -> None:
    # As the uploading action writes it: sizes come after the data, names are UTF-8.
    file = Stream()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("report.json", REPORT)
    data = bytes(file.written)

    assert (data[6] & 0x8, opened("report", io.BytesIO(data)).read("report.json", 10_000)) == (0x8, REPORT)


@pytest.mark.parametrize(
    "name",
    [
        "../report.json", "findings/../../report.json", "/etc/passwd", "/report.json", "C:\\report.json",
        "findings\\relu-1\\program.json", "./report.json", "report.json/", "findings//program.json",
        "findings/../report.json", ".github/workflows/x.yml",
        "report.json\n", "r\N{CYRILLIC SMALL LETTER IE}port.json", "findings/a\u202eb/program.json",
        "", "findings/" + "a" * 201 + "/program.json", "REPORT.JSON", "findings/relu-1/x/program.json",
        "findings/relu-1/evil.py", "results.sarif", "my notes.txt",
    ],
)  # fmt: skip
def test_opened__file_that_is_not_read__is_passed_over_however_it_is_named(name: str) -> None:
    odd = {"external_attr": (stat.S_IFLNK | 0o777) << 16, "compress_type": zipfile.ZIP_STORED}
    found = opened("report", io.BytesIO(made([("report.json", REPORT, {}), (name, b"x", odd), (name, b"y", odd)])))

    assert found.read("report.json", 10_000) == REPORT
    assert list(found._entries) == ["report.json"]


def test_opened__name_that_the_library_shortens__is_asked_for_as_written() -> None:
    # The library reads "report.json\0.py" as "report.json".
    data = zipped({"report.jsonX.py": REPORT}).replace(b"report.jsonX.py", b"report.json\x00.py")

    assert refusal(data) == "entry 'report.json\\x00.py' is not a file of a report"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        pytest.param(stat.S_IFLNK, "is not a plain file", id="symbolic link"),
        pytest.param(stat.S_IFCHR, "is not a plain file", id="device"),
        pytest.param(stat.S_IFIFO, "is not a plain file", id="pipe"),
        pytest.param(stat.S_IFDIR, "is not a plain file", id="folder"),
    ],
)
def test_opened__no_plain_file__is_refused(kind: int, said: str) -> None:
    data = made([("report.json", b"/etc/passwd", {"external_attr": (kind | 0o777) << 16})])

    assert refusal(data) == f"entry 'report.json' {said}"


def test_opened__name_twice__is_refused() -> None:
    assert (
        refusal(made([("report.json", REPORT, {}), ("report.json", b"{}", {})])) == "entry 'report.json' appears twice"
    )


def test_opened__many_bombs_under_the_limit_of_one__are_refused() -> None:
    one = zipped({"findings/a0/program.json": b"\0" * 1000})
    entries = [(f"findings/a{i}/program.json", b"\0" * 1000, {}) for i in range(600)]
    data = made(entries)
    for i in range(600):
        data = patched(data, f"findings/a{i}/program.json", 22, 24, "<I", 8 << 20)

    assert "a0" in opened("report", io.BytesIO(one))._entries.popitem()[0]
    assert refusal(data) == "its entries have 5,033,164,800 bytes, and 4,294,967,296 are allowed"


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        pytest.param(10, "Bad CRC-32", id="less than there is"),
        pytest.param(1 << 19, "it has 1,500 bytes, but its header says 524,288", id="more than there is"),
        pytest.param(2 << 20, "has 2,097,152 bytes; at most 1,048,576 are read", id="more than is read"),
    ],
)
def test_read__lie_about_the_size__is_refused(declared: int, said: str) -> None:
    assert said in refusal(patched(HONEST, "report.json", 22, 24, "<I", declared))


def test_read__lie_about_the_compressed_size__is_refused() -> None:
    assert "report.json cannot be read" in refusal(patched(HONEST, "report.json", 18, 20, "<I", 5))


@pytest.mark.parametrize("flag", [0x1, 0x40, 0x2000], ids=["encrypted", "strongly", "directory"])
def test_opened__encrypted__is_refused(flag: int) -> None:
    assert refusal(patched(HONEST, "report.json", 6, 8, "<H", flag)) == "entry 'report.json' is encrypted"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 99])
def test_opened__compressed_in_a_way_that_is_not_allowed__is_refused(method: int) -> None:
    said = refusal(patched(HONEST, "report.json", 8, 10, "<H", method))

    assert said == f"entry 'report.json' is compressed by method {method}"


def test_read__other_name_in_the_local_header__is_refused() -> None:
    local = HONEST.index(b"report.json")
    data = HONEST[:local] + b"repro.pyxxx" + HONEST[local + 11 :]

    assert "report.json cannot be read" in refusal(data)


def test_opened__truncated_anywhere__is_refused() -> None:
    for length in range(0, len(HONEST), 7):
        assert refusal(HONEST[:length])


def test_opened__every_byte_damaged__is_refused_or_read() -> None:
    # Whatever a byte does: a refusal, or the very content. The sum finds what the headers do not.
    for at in range(0, len(HONEST), 3):
        data = bytearray(HONEST)
        data[at] ^= 0xFF
        with contextlib.suppress(PublishError):
            assert opened("report", io.BytesIO(bytes(data))).read("report.json", 1 << 20) == REPORT


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"<html>", b"PK\x05\x06" + b"\xff" * 18, b"PK\x01\x02" * 10], ids=range(5)
)
def test_opened__no_archive__is_refused(data: bytes) -> None:
    assert refusal(data).startswith("it is not an archive: ")


def test_read__entry_is_not_there__says_so() -> None:
    assert refusal(zipped({"junit.xml": b""})) == (
        "artifact 'report' has no report.json, so no run of ci-autotest wrote it."
    )


def test_most_of__every_file_that_is_read__has_a_limit() -> None:
    assert set(archive.MOST_OF) == {"report.json", "program.json"}
