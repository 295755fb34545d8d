"""Eager PyTorch, on another device than the reference."""

from __future__ import annotations

from ci_autotest.kinds.candidate import BodyCandidate


class TorchCandidate(BodyCandidate, frozen=True, kw_only=True, tag="torch"):
    """Eager PyTorch on a device."""

    is_pytorch = True
