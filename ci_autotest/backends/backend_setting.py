"""Where the backend of a candidate is made: what does not come from the candidate's row."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ci_autotest.backends.worker_side import ALONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.backends.worker_side import WorkerSide


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendSetting:
    """Where a backend is made.

    Attributes:
        device: ``cpu``, ``cuda``, or the device that the candidate's module registers.
        folders: Folders of the user's own modules, for a host or for ranks on other machines.
        worker: What hosts and ranks have to do with this process.
        is_fresh: Whether nothing of the user's has run in this process, so that its fork is as fresh as a new one.
    """

    device: str
    folders: Sequence[str] = ()
    worker: WorkerSide = ALONE
    is_fresh: bool = False

    @property
    def host_folders(self) -> tuple[str, ...]:
        """Folders of a host's modules: it is started with -I, which ignores PYTHONPATH."""
        given = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
        return tuple(dict.fromkeys(os.path.abspath(folder) for folder in (*self.folders, *given)))  # noqa: PTH100
