"""The pages of the documentation that help with what a run ended with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.doc_links import Page, link
from ci_autotest.values.result import LOADER_CANDIDATE

if TYPE_CHECKING:
    from ci_autotest.values.result import RunResult


def help_pages(result: RunResult) -> list[Page]:
    """Return the pages for what needs more than the sentence that the terminal prints, each once."""
    candidates = {item.candidate for item in result.results}
    outcomes = {item.outcome for item in result.results}
    shown = {
        Page.NOTHING_COMPARED: bool(result.results)
        and not result.broken
        and not any(item.cases.compared for item in result.results),
        Page.WEAK: any(item.weak for item in result.results),
        Page.FLAKY: "flaky" in outcomes,
        Page.CRASHED: "crashed" in outcomes,
        Page.UNSUPPORTED: bool(result.results) and outcomes == {"unsupported"} and LOADER_CANDIDATE not in candidates,
    }
    return [page for page, is_shown in shown.items() if is_shown]


def help_lines(result: RunResult) -> list[str]:
    """Return the pages as lines for the terminal."""
    return [f"more about it: {link(page)}" for page in help_pages(result)]
