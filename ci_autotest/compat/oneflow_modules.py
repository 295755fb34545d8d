"""The modules that OneFlow's test files import, and what each of them has.

``oneflow`` has torch's names, so it is answered by the recording ``torch``. What torch lacks is a ``MissingName``.
"""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any, Final

import torch

from ci_autotest.compat.global_tensors import Placement, SbpNames
from ci_autotest.compat.missing_names import MissingName
from ci_autotest.compat.oneflow_names import names
from ci_autotest.compat.oneflow_unittest import TEST_UTIL, UNITTEST
from ci_autotest.errors import UnsupportedReason
from ci_autotest.record.torch_namespace import Namespace

_PACKAGE: Final = "oneflow"
#: Whose names these are; files compare versions.
_VERSION: Final = "0.9.0"
#: Modules beside the tests in versions before 0.6, where they were not yet part of ``oneflow``.
_LOCAL: Final = {
    "automated_test_util": "oneflow.test_utils.automated_test_util", "test_util": "oneflow.test_utils.test_util",
}  # fmt: skip
#: Names of tensors on several ranks.
_ON_RANKS: Final[dict[str, Any]] = {
    "placement": Placement, "sbp": SbpNames, "boxing": MissingName("oneflow.boxing", UnsupportedReason.RANKS),
}  # fmt: skip
#: The shape of one process, in ``oneflow.env``.
_ONE_PROCESS: Final[dict[str, Any]] = {
    "get_rank": lambda: 0, "get_local_rank": lambda: 0, "get_node_rank": lambda: 0, "get_world_size": lambda: 1,
    "get_node_size": lambda: 1,
}  # fmt: skip
#: Every random step has a seed of its own, so that one for all of them has no effect.
_SEEDS: Final[dict[str, Any]] = {"manual_seed": lambda _seed: None}
_OWN: Final[dict[str, dict[str, Any]]] = {
    "oneflow.unittest": UNITTEST,
    "oneflow.framework.unittest": UNITTEST,
    "oneflow.unittest.env": {
        "device_num": lambda: 1, "node_size": lambda: 1, "world_size": lambda: 1,
        "eager_execution_enabled": lambda: True, "typing_check_enabled": lambda: False,
        "has_node_list": lambda: False, "has_world_size": lambda: True,
    },
    "oneflow.test_utils.test_util": TEST_UTIL,
    "oneflow.env": _ONE_PROCESS,
}  # fmt: skip
_STAR: Final = "oneflow.test_utils.automated_test_util"
#: What torch has not; its own ``None``, such as ``torch.version.cuda``, is a value.
_ABSENT: Final = object()
#: Modules whose functions are torch's own.
_FLAT: Final = frozenset({"oneflow", "oneflow._C"})
#: Modules of torch with another path.
_SAME: Final = {
    "oneflow.nn.common_types": "torch.nn.common_types",
    "oneflow.nn.modules.utils": "torch.nn.modules.utils",
}


class LenientNamespace(Namespace):
    """The recording ``torch`` of the star import: what torch lacks is a missing name, as in ``oneflow``."""

    def __getattr__(self, name: str) -> Any:
        if name in _SEEDS:
            return _SEEDS[name]
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return MissingName(f"{self._path}.{name}")


@functools.lru_cache(maxsize=1)
def recording() -> Namespace:
    """Return the recording ``torch`` of all files."""
    return Namespace("torch", torch)


class AnsweredModule(types.ModuleType):
    """A module of OneFlow: its own names, else torch's of the same path, else missing ones."""

    def __init__(self, name: str, own: dict[str, Any], counterpart: Namespace | types.ModuleType | None) -> None:
        super().__init__(name, f"{name}, answered by ci-autotest")
        self.__path__: list[str] = []
        self.__dict__.update(own)
        self._counterpart = counterpart

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in _OWN or full == _STAR:
            return answer(full)
        if name in _ON_RANKS and self.__name__ == _PACKAGE:
            return _ON_RANKS[name]
        found = getattr(self._counterpart, name, _ABSENT)
        if found is _ABSENT:
            return MissingName(full)
        # A part of a package is answered as a module, so that OneFlow's own names in it are answered too.
        return answer(full) if isinstance(found, Namespace | types.ModuleType) else found


@functools.cache
def _module(name: str) -> AnsweredModule:
    if name == _STAR or name.startswith(f"{_STAR}."):
        own = names(LenientNamespace("torch", torch))
        return AnsweredModule(name, {**own, "__all__": list(own)}, None)
    if name in _OWN:
        return AnsweredModule(name, _OWN[name], None)
    own = {**_SEEDS, "__version__": _VERSION} if name == _PACKAGE else {}
    return AnsweredModule(name, own, _counterpart(name))


def _counterpart(name: str) -> Namespace | types.ModuleType | None:
    """Return torch's module of the same path; ``None`` if there is none."""
    if name in _SAME:
        return importlib.import_module(_SAME[name])
    found: Any = recording()
    if name in _FLAT:
        return found  # type: ignore[no-any-return]
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found if isinstance(found, Namespace | types.ModuleType) else None


def answer(name: str) -> AnsweredModule | None:
    """Return the module of a dotted name; ``None`` if it is not OneFlow's."""
    name = _LOCAL.get(name, name)
    return _module(name) if name.partition(".")[0] == _PACKAGE else None
