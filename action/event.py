"""The job's event, from GitHub's expressions: a test could have rewritten the event's file.

Pure functions; the standard library only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Variable that the publisher reads instead of the event's file.
VARIABLE = "AUTOTEST_EVENT"


def payload(environ: Mapping[str, str]) -> str:
    """Return the fields of the event that a comment needs, as JSON; fields that the event lacks are null.

    Args:
        environ: Has the ``EVENT_*`` variables, which the step `publish` fills from the context ``github.event``.
    """
    repository, owner = _given(environ, "RUN_HEAD_REPOSITORY"), _given(environ, "RUN_HEAD_OWNER")
    source, number = _given(environ, "HEAD_REPOSITORY"), _number(environ, "NUMBER")
    pull = {
        "number": number,
        "head": {"sha": _given(environ, "HEAD_SHA"), "repo": {"full_name": source} if source else None},
        "base": {"ref": _given(environ, "BASE")},
    }
    run = {
        "id": _number(environ, "RUN"),
        "run_attempt": _number(environ, "RUN_ATTEMPT"),
        "head_sha": _given(environ, "RUN_HEAD_SHA"),
        "head_branch": _given(environ, "RUN_HEAD_BRANCH"),
        "head_repository": {"full_name": repository, "owner": {"login": owner}} if repository else None,
    }
    # A pull request's number is also that of its issue: which of the two is read depends on the event's name.
    return json.dumps(
        {"pull_request": pull, "workflow_run": run, "issue": {"number": number, "pull_request": {"url": ""}}}
    )


def _given(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(f"EVENT_{name}", "") or None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(f"EVENT_{name}", "")
    return int(value) if value.isascii() and value.isdecimal() else None
