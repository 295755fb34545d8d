"""A page opened in Debian's Chromium, headless, with what it asked for, what failed in it, and what it showed."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Milliseconds after which something that a page should have done is a failure of the test.
GREATEST_MS = 120_000


@dataclass(frozen=True)
class Opened:
    """A page, the addresses that it asked for, and the errors that its scripts raised."""

    page: Any
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def wait_for(self, selector: str, text: str) -> None:
        """Wait until an element has a text. The page forbids ``eval``, so a function cannot be waited for."""
        self.page.locator(selector, has_text=text).wait_for()

    def shown(self, selector: str) -> int:
        """Return how many elements are not hidden by a filter."""
        return self.page.locator(f"{selector}:not([hidden])").count()


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser; the test is skipped where it is not installed, and says what to install."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not here: pip install --group dev")
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no Chromium. Install it (Debian: apt-get install chromium).")
    with playwright.sync_playwright() as started:
        # Without a sandbox, because tests run as root in an image.
        browser = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, file: Path, *, width: int = 1200, height: int = 900, scheme: str = "light") -> Opened:
    """Open a file as a user does who clicks it."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(GREATEST_MS)
    found = Opened(page)
    page.on("request", lambda request: found.asked.append(request.url))
    page.on("pageerror", lambda error: found.errors.append(str(error)))
    page.on("console", lambda message: found.errors.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: found.errors.append(dialog.message))
    page.goto(file.as_uri())
    return found
