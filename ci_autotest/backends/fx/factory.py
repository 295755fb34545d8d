"""How the backend of a graph pass is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.backends.fx.backend import FxBackend

if TYPE_CHECKING:
    from ci_autotest.backends.backend_setting import BackendSetting
    from ci_autotest.kinds import FxCandidate


def make_graph_pass(candidate: FxCandidate, setting: BackendSetting) -> FxBackend:
    """Return a graph pass on a device."""
    return FxBackend(candidate.transform, setting.device)
