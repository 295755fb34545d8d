"""Another framework, with PyTorch's names or a table of its own, in a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ci_autotest.kinds.candidate import DEVICES, ELSEWHERE, Candidate, wrong_variables
from ci_autotest.program.distribution import RANKS_AT_MOST
from ci_autotest.program.python_names import is_module

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Modules that have a graph mode.
GRAPHS: Final = ("oneflow", "paddle")
#: Default of ``shapes`` for modules that compile for every shape.
_SHAPES: Final[dict[str, int]] = {"jax": 3}
#: One rank is an ordinary host.
_FEWEST: Final = 2
#: Modules whose hosts can be ranks, with the device of each rank: only OneFlow's tensors lie on several processes.
_RANK_HOSTS: Final = {"oneflow": "cpu"}


class ModuleCandidate(Candidate, frozen=True, kw_only=True, tag="module"):
    """Another framework, in a process of its own.

    Attributes:
        module: The framework's module, for example ``oneflow``.
        python: The interpreter in which the framework is installed, as a path relative to the configuration's folder or
            a name on PATH. Empty for the interpreter of ci-autotest.
        mode: ``eager`` runs a test's body step by step, ``graph`` as one graph of the framework.
        mapping: Rows of the framework's operator table, by operator, that replace those that ship with ci-autotest.
        env: Environment variables of its process.
        ranks: With module ``oneflow``: number of processes on which its tensors are global, 2 to 16.
    """

    forward_only: bool = False
    module: str = ""
    python: str = ""
    mode: Literal["eager", "graph"] = "eager"
    mapping: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)
    ranks: int | None = None

    @property
    def framework(self) -> str:
        """The module that is tested."""
        return self.module

    @property
    def rank_count(self) -> int:
        """Number of its ranks; 1 if it is no group."""
        return self.ranks or 1

    @property
    def stays_on_cpu(self) -> bool:
        """Whether it is a group of ranks, which are on the CPU."""
        return self.ranks is not None

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables of its own process."""
        return self.env

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the framework."""
        return (self.module,)

    @property
    def untimed(self) -> str:
        """Why it is not timed."""
        return ELSEWHERE

    @property
    def default_shapes(self) -> int:
        """What ``shapes`` is if it is not given."""
        return _SHAPES.get(self.module, 0)

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        if self.device not in DEVICES:
            yield (
                f"has device {self.device!r}, which is not one of {', '.join(DEVICES)}. A framework of backend module "
                "runs on one of these."
            )
        if not is_module(self.module):
            yield f"has module {self.module!r}. Write the name of a framework's module, such as oneflow."
        if self.mode == "graph" and self.module not in GRAPHS:
            yield (
                f"has mode: graph, but module {self.module!r} has no known graph mode. Modules with one: "
                f"{', '.join(GRAPHS)}. Write mode: eager, or leave it out."
            )
        yield from wrong_variables(self.env)
        yield from self._wrong_ranks()

    def _wrong_ranks(self) -> Iterator[str]:
        if self.ranks is None:
            return
        if self.module not in _RANK_HOSTS:
            yield f"has 'ranks', which module {self.module} does not use. Write module: oneflow, or remove it."
        elif not _FEWEST <= self.ranks <= RANKS_AT_MOST:
            yield f"has ranks: {str(self.ranks)[:30]}. Give {_FEWEST} to {RANKS_AT_MOST}, or remove it."
        elif self.device != _RANK_HOSTS[self.module]:
            yield f"has ranks on '{self.device[:40]}'. Write device: cpu, or remove 'ranks'."
