"""Kinds of candidates: one strict type each, with its keys, its checks and what it says of itself.

A kind imports no framework: the parent process and editors read it. The folder of the same name in ``backends`` makes
its backend.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, TypeAlias, get_args

from ci_autotest.kinds.candidate import (
    PROFILES,
    BodyCandidate,
    Candidate,
    Device,
    DeviceCandidate,
    WorkerCandidate,
    running_as,
)
from ci_autotest.kinds.compilers import CompileCandidate, ExportCandidate, OnnxRuntimeCandidate
from ci_autotest.kinds.eager import TorchCandidate
from ci_autotest.kinds.framework import ModuleCandidate
from ci_autotest.kinds.fx import FxCandidate
from ci_autotest.kinds.ranks import DdpCandidate, DTensorCandidate, FsdpCandidate
from ci_autotest.kinds.substitute import SubstituteCandidate

AnyCandidate: TypeAlias = (
    TorchCandidate
    | CompileCandidate
    | FxCandidate
    | OnnxRuntimeCandidate
    | ExportCandidate
    | SubstituteCandidate
    | ModuleCandidate
    | DTensorCandidate
    | DdpCandidate
    | FsdpCandidate
)
#: Groups of ranks with PyTorch.
RankCandidate: TypeAlias = DTensorCandidate | DdpCandidate | FsdpCandidate
#: The kinds, by the name that ``backend:`` gives.
KINDS: Final = MappingProxyType({str(kind.__struct_config__.tag): kind for kind in get_args(AnyCandidate)})

__all__ = [
    "KINDS",
    "PROFILES",
    "AnyCandidate",
    "BodyCandidate",
    "Candidate",
    "CompileCandidate",
    "DTensorCandidate",
    "DdpCandidate",
    "Device",
    "DeviceCandidate",
    "ExportCandidate",
    "FsdpCandidate",
    "FxCandidate",
    "ModuleCandidate",
    "OnnxRuntimeCandidate",
    "RankCandidate",
    "SubstituteCandidate",
    "TorchCandidate",
    "WorkerCandidate",
    "running_as",
]
