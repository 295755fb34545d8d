"""Ranks that share a batch and cannot be had are one sentence, before any process is started."""

from __future__ import annotations

from typing import Any

import pytest

from ci_autotest.backends.ranks.processes import rank_server
from ci_autotest.backends.ranks.training.module_backend import ModuleBackend
from ci_autotest.errors import UnavailableError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"wrap": "no_such_module:wrapped"},
            "candidate 'a': wrap: 'no_such_module' cannot be imported: ModuleNotFoundError: No module named",
        ),
        (
            {"wrap": "tests.module_wrappers:no_such"},
            "candidate 'a': wrap: module 'tests.module_wrappers' has no function 'no_such'. Correct the name.",
        ),
        (
            {"wrap": "tests.module_wrappers:_SMALL_MB"},
            "candidate 'a': wrap: tests.module_wrappers:_SMALL_MB is no function. Name one.",
        ),
    ],
    ids=["no module", "no function", "not a function"],
)
def test_backend__ranks_that_cannot_be__is_one_sentence(given: dict[str, Any], said: str):
    with pytest.raises(UnavailableError) as refused:
        ModuleBackend("a", "ddp", 2, **given)

    assert str(refused.value).startswith(said)


def test_backend__system_without_fork__is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rank_server, "IS_LINUX", False)
    with pytest.raises(UnavailableError) as refused:
        ModuleBackend("a", "fsdp", 2)

    assert str(refused.value) == "candidate 'a': backend fsdp needs Linux. Remove the candidate here."
