"""How the backend of eager PyTorch as a candidate is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.backends.eager.backend import TorchBackend

if TYPE_CHECKING:
    from ci_autotest.backends.backend_setting import BackendSetting


def make_eager(setting: BackendSetting) -> TorchBackend:
    """Return PyTorch on a device."""
    return TorchBackend(setting.device, is_candidate=True)
