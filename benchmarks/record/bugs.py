"""The table of bugs: a row is the decorator of the kernel that has the bug."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from benchmarks.record import kernels
from benchmarks.record.parts import fills_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


#: The sets of bugs, told apart by the names of their modules. ``seen``: the draws were changed with its misses in view.
#: ``holdout``, ``sample`` and ``fresh``: looked up afterwards, each later than the one before it. Nothing was changed
#: for what is missed of them.
Part = Literal["seen", "holdout", "sample", "fresh"]


class Bug(NamedTuple):
    """A bug that a public tracker has.

    Attributes:
        name: Name of the kernel; it is the bug's own.
        path: Dotted path of the kernel.
        tracker: Repository on GitHub.
        number: Number of the issue, or of the pull request that describes and fixes it.
        operator: Operator that the kernel replaces.
        description: What was wrong, in one sentence.
    """

    name: str
    path: str
    tracker: str
    number: int
    operator: str
    description: str

    @property
    def link(self) -> str:
        """Return the address of the issue; GitHub leads from there to a pull request of the same number."""
        return f"https://github.com/{self.tracker}/issues/{self.number}"

    @property
    def part(self) -> Part:
        """Return the set that the bug belongs to."""
        prefix = self.path.split(".")[-2].partition("_")[0]
        return prefix if prefix in {"holdout", "sample", "fresh"} else "seen"


def bug(tracker: str, number: int, operator: str, description: str) -> Callable[[Any], Any]:
    """Mark a kernel as one with a historical bug; what it returns goes to ``out``, unless it takes that itself."""

    def marked(kernel: Any) -> Any:
        if "out" not in inspect.signature(kernel).parameters:
            kernel = fills_out(kernel)
        kernel.bug = Bug(
            kernel.__name__, f"{kernel.__module__}.{kernel.__name__}", tracker, number, operator, description
        )
        return kernel

    return marked


def bugs() -> list[Bug]:
    """Return all bugs, in the order of their modules' names and of their sources."""
    return [
        found for module in _modules() for kernel in vars(module).values() if (found := getattr(kernel, "bug", None))
    ]


def _modules() -> Iterator[Any]:
    for info in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        yield importlib.import_module(info.name)
