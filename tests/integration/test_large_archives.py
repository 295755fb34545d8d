"""Archives that are large, or would be: refused before they cost anything."""

from __future__ import annotations

import tracemalloc
import zipfile

import pytest

from ci_autotest.errors import PublishError
from ci_autotest.github.archive import opened
from tests.archives import bomb, made


def refused_with(data: bytes) -> tuple[str, int]:
    """Return what is said, and the bytes of memory that it took to say it."""
    tracemalloc.start()
    said = refusal(data)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return said, used


def refusal(data: bytes) -> str:
    with pytest.raises(PublishError) as caught:
        opened("report", data).read("report.json", 1 << 20)
    return str(caught.value).removeprefix("artifact 'report' is not read: ").partition(". It is no report")[0]


def test_opened__bomb__is_refused_unread() -> None:
    data = bomb(200 << 20)

    said, used = refused_with(data)

    assert (len(data) < 300_000, used < 10_000_000) == (True, True)
    assert said == "entry 'report.json' has 209,715,200 bytes, and 67,108,864 are allowed"


def test_opened__65536_entries__are_refused_before_any_is_looked_at() -> None:
    data = made([(f"findings/a{i}/program.json", b"", {}) for i in range(65_536)], zipfile.ZIP_STORED)

    said, used = refused_with(data)

    # The library makes an object of some 600 bytes of each entry.
    assert used < len(data) // 2
    assert said == "it has 65,536 entries, and 60,000 are allowed"


def test_opened__40000_entries_of_10000_findings__are_taken() -> None:
    names = ("repro.py", "program.json", "tensors.safetensors", "README.md")
    data = made([(f"findings/a{i}/{name}", b"", {}) for i in range(10_000) for name in names], zipfile.ZIP_STORED)

    assert "findings/a9999/repro.py" in opened("report", data)
