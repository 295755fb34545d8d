"""The page of a report with 2,000 findings: its size, and the seconds to make, open, scroll and filter it.

``python -m benchmarks.page [FINDINGS]``; it needs Chromium and playwright, so it is no part of ``make bench``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from ci_autotest.commands.output_writer import rendered
from tests import page_samples
from tests.browser import chromium, opened

_SCROLL = """async () => { for (let at = 1; at <= 20; at++) {
scrollTo(0, document.body.scrollHeight * at / 20); await new Promise(requestAnimationFrame) } }"""


def main(count: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = page_samples.written(page_samples.many(count), Path(name))
        begun = time.perf_counter()
        text = rendered(folder, "page", None, {})
        print(f"{count:,} findings: {len(text.encode()):,} bytes, made in {time.perf_counter() - begun:.2f} s")
        path = folder / "index.html"
        path.write_text(text, encoding="utf-8")
        with chromium() as browser:
            for _ in range(3):
                _measure(browser, path, count)
    return 0


def _measure(browser, path: Path, count: int) -> None:
    begun = time.perf_counter()
    found = opened(browser, path)
    loaded = time.perf_counter()
    found.page.evaluate(_SCROLL)
    scrolled = time.perf_counter()
    found.page.fill("#search", f"op{count - 1:05}")
    found.wait_for("#shown", "1 of")
    filtered = time.perf_counter()
    print(f"open {loaded - begun:.2f} s, 20 scrolls {scrolled - loaded:.2f} s, filter {filtered - scrolled:.2f} s")
    found.page.close()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000))
