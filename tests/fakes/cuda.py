"""A GPU that works, answers with errors, or was never used."""

from __future__ import annotations

import pytest


class FakeCuda:
    """Stand in for ``torch.cuda``.

    Args:
        is_used: Whether it was initialized.
        error: What synchronising raises.
    """

    def __init__(self, is_used: bool, error: Exception | None = None) -> None:
        self.is_used = is_used
        self.error = error

    def is_initialized(self) -> bool:
        return self.is_used

    def synchronize(self) -> None:
        if not self.is_used:
            pytest.fail("a GPU that nobody used was initialized")
        if self.error is not None:
            raise self.error
