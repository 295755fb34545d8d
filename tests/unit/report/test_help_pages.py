from typing import Any

import pytest

from ci_autotest.doc_links import Page
from ci_autotest.report.help_pages import help_pages
from tests.report_samples import outcome, rejected, run


@pytest.mark.parametrize(
    ("changes", "pages"),
    [
        ({"results": (rejected(), rejected(candidate="kernels"))}, [Page.NOTHING_COMPARED, Page.WEAK]),
        ({"results": (outcome(weak=True),)}, [Page.WEAK]),
        ({"results": (outcome(), outcome(candidate="other", outcome="flaky"))}, [Page.FLAKY]),
        ({"results": (outcome(outcome="crashed"),)}, [Page.CRASHED]),
        ({"results": (outcome(outcome="unsupported"), outcome(outcome="unsupported"))}, [Page.UNSUPPORTED]),
    ],
)
def test_help_pages__of_what_needs_more_than_a_sentence(changes: dict[str, Any], pages: list[Page]) -> None:
    assert help_pages(run(**changes)) == pages


def test_help_pages__of_an_aligned_run__has_none() -> None:
    assert help_pages(run(results=(outcome(), outcome(outcome="unsupported")))) == []
