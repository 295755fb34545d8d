"""Links to the pages of the documentation, for messages that need more than a sentence."""

from __future__ import annotations

from enum import Enum
from typing import Final

#: Where a release's pages are read. It replaces the organisation here as in every other file.
ADDRESS: Final = "https://github.com/org/ci-autotest/blob/v1/docs/"
#: The organisation that stands here until a release replaces it: no such pages exist.
_PLACEHOLDER: Final = "/org/"


class Page(str, Enum):
    """A page of ``docs/``, with the heading that a message is about."""

    PULL_REQUESTS = "how-to/pull-requests.md"
    CI_SYSTEMS = "how-to/ci-systems.md"
    TUTORIAL = "tutorial.md"
    CONFIGURATION = "reference/configuration.md"
    NO_TEST = "how-to/troubleshooting.md#no-test-found"
    NO_CANDIDATE = "how-to/troubleshooting.md#no-candidate"
    NEVER_CALLED = "how-to/troubleshooting.md#the-replacement-was-never-called"
    IMPORTS = "how-to/troubleshooting.md#the-module-is-looked-for-in"
    NOTHING_COMPARED = "how-to/troubleshooting.md#nothing-was-compared"
    FLAKY = "how-to/troubleshooting.md#flaky"
    UNSUPPORTED = "how-to/troubleshooting.md#unsupported-on-a-framework"
    CRASHED = "how-to/troubleshooting.md#the-worker-ended-by-signal-11"
    WEAK = "how-to/troubleshooting.md#weak"
    UNRECORDED_WRITE = "how-to/troubleshooting.md#was-changed-by-a-write-that-was-not-recorded"
    NO_COMMENT = "how-to/troubleshooting.md#a-comment-is-not-there"


def link(page: Page) -> str:
    """Return where a page is read: its address, or before a release the command that prints it."""
    if _PLACEHOLDER not in ADDRESS:
        return f"{ADDRESS}{page.value}"
    return f"ci-autotest docs {page.value.replace('.md', '')}"


def more(page: Page) -> str:
    """Return the end of a message whose subject has a page."""
    return f" More: {link(page)}"
